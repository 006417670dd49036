// Ranks over processes whose devices' memory goes by a wire of its own: the bytes of threads by every operation, as many exchanges and bytes, errors told to
// all and joined anew after one. The wire is in memory; that of NCCL (nccl_wire.h) has not run.
#include "parallel/device_wire.h"

#include <gtest/gtest.h>

#include "parallel/device_wire_test_tools.h"
#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/nccl_wire.h"
#include "parallel/operations_test_tools.h"
#include "parallel/thread_ranks.h"
#include "tensor/cuda_stream.h"

namespace lockstep {
namespace {

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
    EXPECT_TRUE(built_with_cuda()) << "it was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
