#include "launch/hosts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"

namespace lockstep {
namespace {

using HostList = std::vector<Host>;

std::string refused_hosts(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "no error";
}

TEST(Hosts, AreReadFromAList) {
  EXPECT_EQ(read_hosts("a:2,b,gpu-3.cluster:61"), (HostList{{"a", 2}, {"b", 1}, {"gpu-3.cluster", 61}}));
  EXPECT_EQ(read_hosts("a:1, b:3"), (HostList{{"a", 1}, {"b", 3}}));
  EXPECT_EQ(hosts_text(read_hosts("a:2,b")), "a:2,b:1");
  EXPECT_EQ(slots_of(read_hosts("a:2,b")), 3);
}

TEST(Hosts, AreReadFromAFile) {
  EXPECT_EQ(read_hosts_text("# mine\na slots=2\n\nb:3  # new\r\n\tc slots=4 max_slots=8\nd", "hosts"), (HostList{{"a", 2}, {"b", 3}, {"c", 4}, {"d", 1}}));
}

// What is wrong, the value, and what is allowed.
TEST(Hosts, WhatIsNoListIsRefused) {
  const auto expect = [](const std::string& list, const std::string& words, const std::string& allowed) {
    const std::string error = refused_hosts([&] { read_hosts(list); });
    EXPECT_NE(error.find(words), std::string::npos) << list << ": " << error;
    EXPECT_NE(error.find(allowed), std::string::npos) << list << ": " << error;
  };
  expect("", "there is no host", "such as a:2,b");
  expect("a,,b", "'' is no host", "as in a:2,b");
  expect("a,", "'' is no host", "as in a:2,b");
  expect("-oProxyCommand=x", "'-oProxyCommand=x' is no host", "beginning with a letter or a digit");
  expect("a b", "'a b' is no host", "letters, digits");
  expect("a:0", "the host 'a' has '0' slots", "1 to 64");
  expect("a:", "the host 'a' has '' slots", "1 to 64");
  expect("a:2x", "the host 'a' has '2x' slots", "1 to 64");
  expect("a:2,b,a:3", "the host 'a' is there twice", "a:5");
  expect("a:40,b:25", "65 slots", "at most 64");
}

TEST(Hosts, AFilesErrorsNameItsLine) {
  const std::string unknown = refused_hosts([] { read_hosts_text("a\nb slot=2\n", "my-hosts"); });
  EXPECT_NE(unknown.find("'slot=2' is unknown, allowed is HOST slots=N"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("'my-hosts', line 2"), std::string::npos) << unknown;
  const std::string none = refused_hosts([] { read_hosts_text("# a\n", "my-hosts"); });
  EXPECT_NE(none.find("there is no host"), std::string::npos) << none;
  EXPECT_NE(none.find("my-hosts"), std::string::npos) << none;
}

TEST(Hosts, ThisMachineComesFirst) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  EXPECT_TRUE(is_this_machine("localhost"));
  EXPECT_TRUE(is_this_machine("127.0.0.1"));
  EXPECT_TRUE(is_this_machine(own));
  EXPECT_FALSE(is_this_machine("some-other-machine"));
  EXPECT_EQ(in_mpirun_order({{"far", 1}, {"localhost", 2}, {"away", 3}}), (HostList{{"localhost", 2}, {"far", 1}, {"away", 3}}));
}

}  // namespace
}  // namespace lockstep
