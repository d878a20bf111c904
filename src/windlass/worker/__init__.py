"""Workers: processes that claim jobs and run them, and the supervisor that keeps them alive."""
