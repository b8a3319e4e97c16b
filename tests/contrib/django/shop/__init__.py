"""A shop in Django: on PostgreSQL at the port of SHOP_PG, else on SQLite in memory."""
