"""The Kafka sink: plain and transactional."""
