"""Kafka: topics are taken, and published to. The extra `kafka` brings librdkafka (confluent-kafka)."""
