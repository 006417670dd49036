# SQLite stays in database.cpp.
find_package(SQLite3 REQUIRED)
target_link_libraries(lockstep_store PRIVATE SQLite::SQLite3)
