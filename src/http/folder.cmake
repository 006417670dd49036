# Boost stays in connection.cpp, server.cpp, client.cpp and asio.cpp, which holds asio's own sources.
find_package(Boost 1.81 REQUIRED)
target_link_libraries(lockstep_http PRIVATE Boost::headers)
target_compile_definitions(lockstep_http PRIVATE BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED BOOST_BEAST_SEPARATE_COMPILATION)
