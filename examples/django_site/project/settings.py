"""The settings of the site."""

import importlib.util
import os
from pathlib import Path

BASE_DIR = Path(__file__).parent.parent
DATA_DIR = Path(os.environ.get("SHOP_DATA", BASE_DIR))

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "project.urls"
USE_TZ = True
TIME_ZONE = "Europe/Paris"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "windlass.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATA_DIR / "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

WINDLASS = {
    "url": os.environ.get("WINDLASS_URL", f"sqlite:///{DATA_DIR}/jobs.db"),
    "queues": {"mail": {"concurrency": 5}},
    "dashboard": "http://127.0.0.1:8200/",
}
if importlib.util.find_spec("django.tasks") is None:  # before Django 6 it is a package of its own
    INSTALLED_APPS.append("django_tasks")
TASKS = {
    "default": {"BACKEND": "windlass.django.backend.TasksBackend", "QUEUES": ["default", "mail"]},
}
