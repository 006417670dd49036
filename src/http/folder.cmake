# Boost stays in the sources of this folder; asio.cpp holds asio's own. Tests of TLS speak OpenSSL themselves.
find_package(Boost 1.81 REQUIRED)
target_link_libraries(lockstep_http PRIVATE Boost::headers OpenSSL::SSL)
target_compile_definitions(lockstep_http PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}" BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED BOOST_BEAST_SEPARATE_COMPILATION)
if(TARGET test_http)
  target_link_libraries(test_http PRIVATE Boost::headers OpenSSL::SSL)
endif()
# A server that says what a test wants to hear (tests/api/test_calls.py).
if(LOCKSTEP_TESTS)
  lockstep_test_tool(said_server lockstep_http)
endif()
