"""A shop with tenants."""
