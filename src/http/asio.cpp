// The sources of Boost.Asio and Boost.Beast, compiled once.
#include <utility>  // before asio: g++ 12 wants std::exchange there

#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
