# Messages of the Tinker protocol (api/tinker): generated, and known to proto_codec.cpp and its test alone. zstd: bodies of requests.
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
set(messages ${CMAKE_BINARY_DIR}/messages)
add_custom_command(
  OUTPUT ${messages}/api/tinker/tinker_public.pb.cc ${messages}/api/tinker/tinker_public.pb.h
  COMMAND ${CMAKE_COMMAND} -E make_directory ${messages}
  COMMAND protobuf::protoc --proto_path=${CMAKE_SOURCE_DIR}/src --cpp_out=${messages} api/tinker/tinker_public.proto
  DEPENDS ${CMAKE_SOURCE_DIR}/src/api/tinker/tinker_public.proto VERBATIM)
target_sources(lockstep_api PRIVATE ${messages}/api/tinker/tinker_public.pb.cc ${messages}/api/tinker/tinker_public.pb.h)
target_include_directories(lockstep_api PUBLIC ${messages})
target_link_libraries(lockstep_api PRIVATE protobuf::libprotobuf-lite PkgConfig::ZSTD)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/api/tinker/proto_codec_test.cpp PROPERTIES COMPILE_OPTIONS "-Wno-unused-parameter;-Wno-array-bounds")
set_source_files_properties(${messages}/api/tinker/tinker_public.pb.cc ${CMAKE_SOURCE_DIR}/src/api/tinker/proto_codec.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-Wno-unused-parameter;-Wno-array-bounds")
