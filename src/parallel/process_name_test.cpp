#include "parallel/process_name.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ProcessName, IsReadAsItIsWritten) {
  const ProcessName name{11, "gpu-3.cluster", 70412};
  EXPECT_EQ(name.text(), "process 11 (host gpu-3.cluster, pid 70412)");
  for (const char* around : {"{}", "error: {} ended without a word", "a process {}: process 3 {}", "process 3 (host b, pid) and {}"}) {
    std::string sentence = around;
    for (std::size_t at; (at = sentence.find("{}")) != std::string::npos;) sentence.replace(at, 2, name.text());
    const std::optional<ProcessName> found = find_process_name(sentence);
    ASSERT_TRUE(found) << sentence;
    EXPECT_EQ(found->process, 11) << sentence;
    EXPECT_EQ(found->host, "gpu-3.cluster") << sentence;
    EXPECT_EQ(found->pid, 70412) << sentence;
  }
}

TEST(ProcessName, WhatNamesNobodyIsNoName) {
  for (const char* sentence : {"", "process", "process 1", "process 1 (host b)", "process 1 (host , pid 7)", "process -1 (host b, pid 7)",
                               "process 99999999999 (host b, pid 7)", "process 1 (host b, pid 7"})
    EXPECT_FALSE(find_process_name(sentence)) << sentence;
}

}  // namespace
}  // namespace lockstep
