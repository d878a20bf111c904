"""Orders of many tenants: taken by FastAPI, placed by workers."""
