"""Users' files in SQLite databases: their contents, lists of files, and the routes of `/v1/files`.

For plugins that store files. All work with a database is done by functions that take a connection. Each runs in a
transaction of its own, off the event loop.
"""
