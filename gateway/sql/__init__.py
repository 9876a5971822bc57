"""A store in an SQL database, without the database: its schema, its statements, and what follows event logs.

Operations are generators that yield statements and receive rows, so that the same ones run on a blocking driver in a
thread and on an asynchronous one. A plugin brings the driver, as a `Database`.
"""
