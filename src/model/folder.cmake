# Each family has a Layer of its own.
file(GLOB families ${CMAKE_SOURCE_DIR}/src/model/archs/*.cpp)
set_source_files_properties(${families} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
