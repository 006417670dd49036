// Objects come in pieces over as many connections as are allowed, also one that is far below 4 MB; a server that gives no parts is asked for the whole.
#include "sync/downloads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <random>

#include "base/error.h"
#include "sync/folder_store.h"
#include "sync/read_alone.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct Asked {
  std::uint64_t offset, bytes;
};

// A folder that is read as if it were behind a network. A transfer of a server that is known
// to give parts waits until `company` are under way together, or a tenth of a second where so many cannot come.
class FarStore final : public ReadAlone<Store> {
 public:
  FarStore(const Store& folder, std::optional<bool> ranges, int company, std::uint64_t broken_after = 0)
      : folder_(folder), ranges_(ranges), company_(company), broken_after_(broken_after) {}
  std::string label() const override { return "far"; }
  std::optional<std::uint64_t> size(StoredKind kind, const std::string& digest) const override { return folder_.size(kind, digest); }
  std::string read(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes) const override {
    return folder_.read(kind, digest, offset, bytes);
  }
  void stream(StoredKind kind, const std::string& digest, std::uint64_t offset, std::uint64_t bytes, const Sink& sink) const override {
    {
      std::unique_lock lock(mutex_);
      asked_.push_back({offset, bytes});
      most_ = std::max(most_, ++under_way_);
      changed_.notify_all();
      const bool can_come = company_ <= 4;
      if (ranges_) changed_.wait_for(lock, std::chrono::milliseconds(can_come ? 20'000 : 100), [&] { return most_ >= company_; });
    }
    sink(read(kind, digest, offset, broken_after_ > 0 ? broken_after_ : bytes));
    const std::lock_guard lock(mutex_);
    --under_way_;
    if (!ranges_) ranges_ = true;
    if (gives_none_) ranges_ = false;
    if (broken_after_ > 0) fail(ErrorCode::io, "the connection is broken");
  }
  bool is_far() const override { return true; }
  std::optional<bool> gives_ranges() const override {
    const std::lock_guard lock(mutex_);
    return ranges_;
  }
  std::vector<std::string> list(StoredKind kind) const override { return folder_.list(kind); }
  std::vector<std::string> channels() const override { return {}; }
  std::optional<std::string> read_channel(const std::string&) const override { return std::nullopt; }
  std::vector<std::string> records(const std::string&) const override { return {}; }
  std::optional<std::string> read_record(const std::string&, const std::string&) const override { return std::nullopt; }

  void turn_out_to_give_none() { gives_none_ = true; }
  int most() const { return most_; }
  const std::vector<Asked>& asked() const { return asked_; }

 private:
  [[noreturn]] void refuse() const override { fail(ErrorCode::internal, "read alone"); }
  const Store& folder_;
  mutable std::optional<bool> ranges_;
  const int company_;
  const std::uint64_t broken_after_;  // bytes of a transfer; 0: none breaks
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int under_way_ = 0, most_ = 0;
  mutable std::vector<Asked> asked_;
  bool gives_none_ = false;  // seen by the first transfer
};

class DownloadsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("lockstep-downloads-{}-{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
    folder_ = open_folder_store(root_ / "store", true);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string object(std::size_t bytes, std::uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::string text(bytes, '\0');
    for (char& one : text) one = static_cast<char>(random());
    const auto lock = folder_->writing();
    const auto writer = folder_->write_object();
    writer->write(text);
    const std::string digest = writer->commit();
    objects_[digest] = text;
    return digest;
  }
  // Fetches them, and compares every byte.
  void fetch(const FarStore& far, int parallel, const std::vector<std::string>& digests) {
    Downloads near(far, root_ / "near", {.parallel = parallel});
    near.fetch(digests);
    for (const std::string& digest : digests) EXPECT_TRUE(near.read(StoredKind::object, digest, 0, objects_.at(digest).size()) == objects_.at(digest));
    near.clear();
  }

  fs::path root_;
  std::unique_ptr<Store> folder_;
  std::map<std::string, std::string> objects_;
};

TEST_F(DownloadsTest, ASmallObjectComesOverSeveralConnections) {
  const FarStore far(*folder_, true, 4);
  fetch(far, 4, {object(1'000'001)});
  EXPECT_EQ(far.most(), 4);
  ASSERT_EQ(far.asked().size(), 4U);
  std::uint64_t bytes = 0;
  for (const Asked& one : far.asked()) bytes += one.bytes;
  EXPECT_EQ(bytes, 1'000'001U);
}

TEST_F(DownloadsTest, ATinyOneIsNotCut) {
  const FarStore far(*folder_, true, 1);
  fetch(far, 4, {object(60'000)});
  EXPECT_EQ(far.asked().size(), 1U);
}

TEST_F(DownloadsTest, OfALargeOneNoPieceIsAbove4MB) {
  const FarStore far(*folder_, true, 4);
  fetch(far, 4, {object(17 << 20)});
  EXPECT_EQ(far.asked().size(), 5U);
  for (const Asked& one : far.asked()) EXPECT_LE(one.bytes, kMostPieceBytes);
}

TEST_F(DownloadsTest, NoMoreTransfersAreUnderWayThanAreAllowed) {
  const FarStore far(*folder_, true, 5);  // which never come together
  fetch(far, 2, {object(300'000, 1), object(300'000, 2), object(300'000, 3)});
  EXPECT_EQ(far.most(), 2);
}

TEST_F(DownloadsTest, TheFirstPieceShowsWhetherThereAreParts) {
  const FarStore far(*folder_, std::nullopt, 3);
  fetch(far, 4, {object(400'000)});
  ASSERT_EQ(far.asked().size(), 4U);
  EXPECT_EQ(far.asked()[0].offset, 0U);
  EXPECT_EQ(far.most(), 3);  // of the others, once it had come
}

TEST_F(DownloadsTest, AServerWithoutPartsIsAskedOnce) {
  const FarStore far(*folder_, false, 1);
  fetch(far, 4, {object(400'000)});
  ASSERT_EQ(far.asked().size(), 1U);
  EXPECT_EQ(far.asked()[0].bytes, 400'000U);
}

TEST_F(DownloadsTest, OfAServerThatTurnsOutToGiveNoneTheRestIsAskedOnce) {
  FarStore far(*folder_, true, 1);
  far.turn_out_to_give_none();
  fetch(far, 1, {object(400'000)});
  ASSERT_EQ(far.asked().size(), 2U);
  EXPECT_EQ(far.asked()[1].offset, 100'000U);
  EXPECT_EQ(far.asked()[1].bytes, 300'000U);
}

// Each piece goes on where it broke off.
TEST_F(DownloadsTest, WhatCameOfAPieceIsNotFetchedAgain) {
  const std::string digest = object(400'000);
  const FarStore broken(*folder_, true, 1, 50'000), far(*folder_, true, 1);
  EXPECT_THROW(Downloads(broken, root_ / "near", {}).fetch({digest}), Error);
  const Downloads near(far, root_ / "near", {});
  EXPECT_EQ(near.missing({digest}), 200'000U);
  near.fetch({digest});
  ASSERT_EQ(far.asked().size(), 4U);
  for (const Asked& one : far.asked()) {
    EXPECT_EQ(one.offset % 100'000, 50'000U);
    EXPECT_EQ(one.bytes, 50'000U);
  }
  EXPECT_EQ(near.arrived(), 200'000U);
  EXPECT_TRUE(near.read(StoredKind::object, digest, 0, 400'000) == objects_.at(digest));
}

}  // namespace
}  // namespace lockstep
