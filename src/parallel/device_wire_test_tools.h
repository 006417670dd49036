// A wire of devices' memory between threads that stand for processes. Tests only.
//   MemoryDevices wire(std::make_shared<DeviceNet>(), mail.process()); ProcessRanks ranks(layout, mail, &wire);
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "parallel/device_wire.h"

namespace lockstep {

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

}  // namespace lockstep
