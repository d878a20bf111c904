"""RabbitMQ: messages of its queues become jobs, the ends of jobs go to its exchanges. docs/rabbitmq.md."""
