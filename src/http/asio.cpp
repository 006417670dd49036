// The sources of Boost.Asio, its ssl part and Boost.Beast, compiled once.
#include <utility>  // before asio: g++ 12 wants std::exchange there

#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
