"""Files of users in SQLite databases, and the files of `/v1/files`."""

from gateway.base.temporary_files import (
    temporary_file,
)
from gateway.storage.files.contents import (
    CONTENTS_TABLE,
    PART,
    Download,
    content_of,
    part_of,
    size_of,
    write_content,
)
from gateway.storage.files.database import (
    DatabaseFile,
    FilesDatabase,
    ReadTooLong,
)
from gateway.storage.files.form import (
    PURPOSES,
    FileUpload,
    clean_filename,
)
from gateway.storage.files.growing import (
    GrowingFile,
)
from gateway.storage.files.lists import (
    ListQuery,
    list_query,
    page,
)
from gateway.storage.files.routes import (
    FileRoutes,
)
from gateway.storage.files.shrinking import (
    shrink_database,
)
from gateway.storage.files.uploaded import (
    FILE_TABLES,
    FileLimits,
    FileObject,
    UploadedFiles,
    check_room,
    file_object,
    find_file,
    insert_file,
    new_file,
    no_such_file,
    uploaded_files,
)

__all__ = [
    "CONTENTS_TABLE",
    "FILE_TABLES",
    "PART",
    "PURPOSES",
    "DatabaseFile",
    "Download",
    "FileLimits",
    "FileObject",
    "FileRoutes",
    "FileUpload",
    "FilesDatabase",
    "GrowingFile",
    "ListQuery",
    "ReadTooLong",
    "UploadedFiles",
    "check_room",
    "clean_filename",
    "content_of",
    "file_object",
    "find_file",
    "insert_file",
    "list_query",
    "new_file",
    "no_such_file",
    "page",
    "part_of",
    "shrink_database",
    "size_of",
    "temporary_file",
    "uploaded_files",
    "write_content",
]
