// The sources of Boost.Asio and of Beast's parser, compiled once.
#include <utility>  // before asio: g++ 12 wants std::exchange there

#include <boost/asio/impl/src.hpp>
#include <boost/beast/http/impl/basic_parser.ipp>
#include <boost/beast/src.hpp>
