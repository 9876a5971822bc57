"""Files of users in SQLite databases: their contents, lists of them, and what `/v1/files` stores and serves.

For plugins that keep files. All work with a database is done by functions of a connection, which run in one transaction
each, off the event loop.
"""
