"""Live webserver and daemon, a real browser, a real database server."""
