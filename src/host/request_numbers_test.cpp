#include "host/request_numbers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(RequestNumbers, OfManyThatComeAtOnceOneIsMade) {
  RequestNumbers numbers(KeyLimit(1000, 100));
  std::atomic<int> made{0};
  std::vector<std::string> got(8);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < got.size(); ++t)
    threads.emplace_back([&, t] {
      got[t] = numbers
                   .find_or("ann", "create s1", 3,
                            [&] {
                              std::this_thread::sleep_for(std::chrono::milliseconds(5));  // where another would come between
                              return "request-" + std::to_string(++made);
                            })
                   .first;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(got, std::vector<std::string>(8, "request-1"));
  EXPECT_FALSE(numbers.find("bob", "create s1", 3));
  EXPECT_FALSE(numbers.find("ann", "create s1", 4));
}

TEST(RequestNumbers, OneThatWasRefusedMayComeAgain) {
  RequestNumbers numbers(KeyLimit(1000, 100));
  EXPECT_THROW(numbers.find_or("ann", "m", 1, []() -> std::string { throw std::runtime_error("no room"); }), std::runtime_error);
  EXPECT_EQ(numbers.find_or("ann", "m", 1, [] { return std::string("a"); }), std::pair(std::string("a"), true));
  EXPECT_EQ(numbers.find_or("ann", "m", 1, [] { return std::string("b"); }), std::pair(std::string("a"), false));
  numbers.forget("m");
  EXPECT_EQ(numbers.find_or("ann", "m", 1, [] { return std::string("b"); }), std::pair(std::string("b"), true));
}

}  // namespace
}  // namespace lockstep
