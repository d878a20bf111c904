"""The first tables."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Orders."""

    initial = True
    dependencies = []
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("book", models.CharField(max_length=100)),
                ("email", models.EmailField(max_length=254)),
                ("receipt_sent", models.BooleanField(default=False)),
                ("packed", models.BooleanField(default=False)),
            ],
        ),
    ]
