// Ranks over processes whose devices' memory goes by a wire of its own: the bytes of threads by every operation, as many exchanges and bytes, errors told to
// all and joined anew after one. The wire is in memory; that of NCCL (nccl_wire.h) has not run.
#include "parallel/device_wire.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/nccl_wire.h"
#include "parallel/operations_test_tools.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

struct DeviceNet {
  std::mutex mutex;
  std::map<std::pair<int, int>, std::deque<std::string>> ways;  // by pair, sender first
  std::atomic<std::int64_t> moved = 0;
  bool changes = false;  // the first byte of what arrives
};

class MemoryDevices final : public DeviceWire {
 public:
  MemoryDevices(std::shared_ptr<DeviceNet> net, int process) : net_(std::move(net)), process_(process) {}
  bool takes(const Stream&) const override { return true; }
  void join(int process, int processes, const Gather& gather, const Check&) override {
    if (joined_) return;
    EXPECT_EQ(process, process_);
    const std::vector<std::string> told = gather(process == 0 ? "id" : "");
    EXPECT_EQ(static_cast<int>(told.size()), processes);
    EXPECT_EQ(told[0], "id");
    joined_ = true;
    ++joins;
  }
  void exchange(Stream& stream, const std::vector<Part>& sends, const std::vector<Part>& receives, const Check& check) override {
    if (!joined_) fail(ErrorCode::internal, "not joined");
    for (const Part& part : sends) {
      std::string bytes(bytes_in(part.view), '\0');
      stream.copy(without_gaps(part.view, bytes), part.view);
      stream.synchronize();
      const std::lock_guard lock(net_->mutex);
      net_->ways[{process_, part.process}].push_back(std::move(bytes));
    }
    for (const Part& part : receives) {
      std::string bytes = take(part.process, check);
      ASSERT_EQ(bytes.size(), bytes_in(part.view));
      if (net_->changes) bytes[0] = static_cast<char>(bytes[0] ^ 1);
      stream.copy(part.view, without_gaps(part.view, bytes));
      stream.synchronize();
      net_->moved += static_cast<std::int64_t>(bytes.size());
    }
  }
  void give_up() override {
    joined_ = false;
    const std::lock_guard lock(net_->mutex);
    for (auto& [pair, way] : net_->ways)
      if (pair.second == process_) way.clear();
  }
  int joins = 0;

 private:
  static std::size_t bytes_in(const View& view) { return static_cast<std::size_t>(view.size()) * view.element_bytes; }
  static View without_gaps(const View& like, std::string& bytes) {
    View view = like;
    view.address = reinterpret_cast<std::uint64_t>(bytes.data());
    view.stride = like.cols;
    return view;
  }
  std::string take(int from, const Check& check) {
    for (;; std::this_thread::yield()) {
      {
        const std::lock_guard lock(net_->mutex);
        std::deque<std::string>& way = net_->ways[{from, process_}];
        if (!way.empty()) {
          std::string bytes = std::move(way.front());
          way.pop_front();
          return bytes;
        }
      }
      check();
    }
  }
  std::shared_ptr<DeviceNet> net_;
  int process_;
  bool joined_ = false;
};

// What each rank received by every operation, one rank a process.
std::vector<std::string> operations_by_devices(const RankLayout& layout, const std::shared_ptr<DeviceNet>& net) {
  std::vector<std::string> got(static_cast<std::size_t>(layout.size()));
  ThreadRanks threads(layout);
  operations_of(threads, 3);
  as_processes(layout.size(), [&](ProcessMail& mail) {
    MemoryDevices wire(net, mail.process());
    ProcessRanks ranks(layout, mail, &wire);
    EXPECT_FALSE(ranks.moves_meanwhile());
    got[static_cast<std::size_t>(mail.process())] = operations_of(ranks, 3)[0];
    const RankPlace place = ranks.place(0);
    EXPECT_EQ(exchanges_of(place).difference(exchanges_of(threads.place(place.rank))), "") << "rank " << place.rank;
    EXPECT_EQ(exchanges_of(place).sum().sent, exchanges_of(place).sum().bytes);
    EXPECT_EQ(wire.joins, 1);
  });
  return got;
}

TEST(DeviceWire, EveryOperationHasTheBytesOfThreads) {
  for (const RankLayout& layout : {RankLayout{1, 2, 1}, {2, 1, 1}, {1, 3, 1}, {2, 2, 1}, {2, 2, 2}}) {
    SCOPED_TRACE(layout.text());
    ThreadRanks threads(layout);
    const auto net = std::make_shared<DeviceNet>();
    EXPECT_EQ(operations_by_devices(layout, net), operations_of(threads, 3));
    EXPECT_EQ(net->moved.load(), traffic_of(threads).bytes);
  }
}

// The control: what travels there is what is compared.
TEST(DeviceWireControl, AChangedByteIsSeen) {
  ThreadRanks threads({1, 2, 1});
  const auto net = std::make_shared<DeviceNet>();
  net->changes = true;
  EXPECT_NE(operations_by_devices({1, 2, 1}, net), operations_of(threads, 3));
}

TEST(DeviceWire, AnErrorOfOneRankReleasesTheOthersAndAllJoinAnew) {
  const auto net = std::make_shared<DeviceNet>();
  as_processes(3, [&](ProcessMail& mail) {
    MemoryDevices wire(net, mail.process());
    ProcessRanks ranks({1, 3, 1}, mail, &wire);
    const auto gather = [&](bool fails) {
      ranks.run([&](int local) {
        Communicator& group = *ranks.place(local).data;
        Device device(BackendKind::cpu, 1);
        const Buffer own = device.upload(std::vector<float>{static_cast<float>(group.rank())}, 1, 1, MemoryCategory::workspace);
        const Buffer all = device.allocate_zero(DType::f32, 3, 1, MemoryCategory::workspace);
        if (fails && group.rank() == 1) fail(ErrorCode::internal, "planted");
        all_gather(group, device.stream(), own.view(), {all.view().row_range(0, 1), all.view().row_range(1, 1), all.view().row_range(2, 1)});
        EXPECT_EQ(device.stream().read(all.view()).get(), (std::vector<float>{0, 1, 2}));
      });
    };
    gather(false);
    try {
      gather(true);
      ADD_FAILURE() << "nothing was told";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("planted"), std::string::npos) << e.what();
    }
    gather(false);
    EXPECT_EQ(wire.joins, 2);
  });
}

TEST(DeviceWire, AProcessHasOneRank) {
  as_processes(2, [&](ProcessMail& mail) {
    MemoryDevices wire(std::make_shared<DeviceNet>(), mail.process());
    try {
      ProcessRanks ranks({2, 2, 1}, mail, &wire);
      ADD_FAILURE() << "it was made";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("which are 4, and there are 2 processes"), std::string::npos) << e.what();
    }
  });
}

// Without a GPU, its code in this build or the module, the reason is told before anything begins.
TEST(NcclWire, IsRefusedWithAReason) {
  try {
    load_nccl_wire();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
