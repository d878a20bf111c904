"""The client: what programs import to enqueue jobs and to ask what became of them."""
