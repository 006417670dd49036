#include "parity/doctor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace lockstep {
namespace {
namespace fs = std::filesystem;

MachineFacts fit_machine() {
  MachineFacts f;
  f.processor = "Test";
  f.features = {"avx2", "fma", "f16c"};
  f.processors = f.usable_processors = f.cores = 4;
  f.memory_bytes = f.memory_available_bytes = std::int64_t{16} << 30;
  f.open_files = f.open_files_hard = 65536;
  return f;
}

const Finding* find(const std::vector<Finding>& all, const std::string& subject, Finding::Level level) {
  const auto it = std::find_if(all.begin(), all.end(), [&](const Finding& f) { return f.subject == subject && f.level == level; });
  return it == all.end() ? nullptr : &*it;
}

TEST(Doctor, AFitMachineHasNothingToMend) {
  for (const Finding& f : judge(fit_machine(), 10, {{"p", "avx2", 1, "a", "a"}}, std::int64_t{50} << 30)) {
    EXPECT_EQ(f.level, Finding::Level::good) << f.text;
    EXPECT_EQ(f.mend, "");
  }
}

TEST(Doctor, EachFaultIsFoundAndHasALineThatMendsIt) {
  using Level = Finding::Level;
  const auto judged = [](auto change) {
    MachineFacts f = fit_machine();
    change(f);
    return judge(f, 0, {}, std::int64_t{50} << 30);
  };
  const auto expect = [](const std::vector<Finding>& all, const char* subject, Level level, const char* mend) {
    const Finding* f = find(all, subject, level);
    ASSERT_NE(f, nullptr) << subject;
    EXPECT_NE(f->mend.find(mend), std::string::npos) << f->mend;
  };
  expect(judged([](MachineFacts& f) { f.features = {"avx2", "f16c"}; }), "processor", Level::problem, "AVX2");
  expect(judged([](MachineFacts& f) { f.cores = 2; }), "cores", Level::note, "--threads 2");
  expect(judged([](MachineFacts& f) { f.processor_quota = 1.5; }), "cores", Level::warning, "--threads 1");
  expect(judged([](MachineFacts& f) {
           f.nodes = 2, f.node_processors = {2, 2};
         }),
         "nodes", Level::note, "numactl --cpunodebind=0 --membind=0 lockstep --threads 2");
  expect(judged([](MachineFacts& f) { f.nodes = 2, f.node_processors = {4}; }), "nodes", Level::note, "");
  expect(judged([](MachineFacts& f) { f.frequency_governor = "powersave"; }), "cores", Level::note, "cpupower");
  expect(judged([](MachineFacts& f) { f.memory_limit_bytes = std::int64_t{1} << 30; }), "memory", Level::warning, "memory");
  expect(judged([](MachineFacts& f) { f.open_files = 1024; }), "limits", Level::warning, "ulimit -n 65536");
  expect(judge(fit_machine(), 0, {}, 1000), "disk", Level::warning, "folder");
  expect(judge(fit_machine(), 0, {{"p", "avx2", 1, "a", "a"}, {"p", "avx512", 1, "b", "a"}}, 0), "bits", Level::problem, "rebuild");
}

TEST(Doctor, ReadsWhatTheSystemTells) {
  std::string name = (fs::temp_directory_path() / "lockstep-machine-XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path root = name;
  const auto put = [&](const char* path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2GHz\nflags\t\t: fpu avx2 fma f16c hypervisor\n\nprocessor\t: 1\n");
  put("proc/meminfo", "MemTotal:       1000 kB\nMemFree:        10 kB\nMemAvailable:    500 kB\n");
  put("sys/fs/cgroup/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/memory.max", "4096\n");
  put("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
  put("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n");
  put("sys/devices/system/node/node0/cpulist", "0-1023\n");
  const MachineFacts f = read_machine(root);
  EXPECT_EQ(f.processor, "Some CPU @ 2GHz");
  EXPECT_EQ(f.features, (std::vector<std::string>{"avx2", "fma", "f16c"}));
  EXPECT_EQ(f.processors, 2);
  EXPECT_TRUE(f.virtual_machine);
  EXPECT_EQ(f.cores, 1);
  EXPECT_EQ(f.nodes, 1);
  EXPECT_EQ(f.node_processors, std::vector<std::int64_t>{f.usable_processors});
  EXPECT_EQ(f.processor_quota, 1.5);
  EXPECT_EQ(f.memory_bytes, 1000 << 10);
  EXPECT_EQ(f.memory_available_bytes, 500 << 10);
  EXPECT_EQ(f.memory_limit_bytes, 4096);
  fs::remove_all(root);
  EXPECT_EQ(read_machine(root).processor, "");  // nothing to read is no fault
}

TEST(Doctor, ThisMachineGivesThePublishedBitsAndReadsItsMemory) {
  const std::vector<SelfTestRow> rows = run_self_test(2);
  EXPECT_GE(rows.size(), 8u);
  for (const SelfTestRow& row : rows) EXPECT_EQ(row.hash, row.published) << row.profile << " " << row.isa << " " << row.threads;
  const double bandwidth = memory_speed(1).gigabytes_per_second;
  EXPECT_TRUE(bandwidth == 0 || (bandwidth > 0.1 && bandwidth < 10000)) << bandwidth;
}

}  // namespace
}  // namespace lockstep
