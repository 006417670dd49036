# Stores behind a server speak through libcurl (transfer.cpp).
find_package(CURL 7.75 REQUIRED)
target_link_libraries(lockstep_sync PRIVATE CURL::libcurl z zstd) # those of arc_delta.cpp
