// Snapshots of small folders through a store: they come back bit for bit, by every way; damage is found and named; a kill at any point leaves the
// old or the new snapshot; pruning keeps what is needed.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "sync/channel.h"
#include "sync/codec_test_tools.h"
#include "sync/snapshot_check.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

using Contents = std::map<std::string, std::string>;  // tensor -> bytes

class Stores : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("lockstep-sync-{}-{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  static const std::vector<TensorShape>& shapes() {
    static const std::vector<TensorShape> all = {
        {"a.weight", SafetensorsType::bf16, {40, 50}, 4000},  {"b.empty", SafetensorsType::f32, {0, 3}, 0},    {"c.scale", SafetensorsType::f32, {}, 4},
        {"d.codes", SafetensorsType::u8, {700}, 700},         {"e.half", SafetensorsType::f16, {3, 111}, 666}, {"f.long", SafetensorsType::i64, {5}, 40},
        {"g.eighth", SafetensorsType::f8_e4m3, {64, 10}, 640}};
    return all;
  }
  static Contents first_contents(std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    Contents contents;
    for (const TensorShape& shape : shapes()) contents[shape.name] = random_bytes(random, shape.bytes);
    contents["a.weight"] = plain_bf16(random, 2000);
    return contents;
  }
  // Some tensors change a little.
  static Contents next_contents(const Contents& before, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Contents after = before;
    for (const TensorShape& shape : shapes())
      if (random() % 3 != 0) after[shape.name] = changed_copy(random, shape.type, before.at(shape.name), 40);
    return after;
  }
  fs::path folder_of(const std::string& name, const Contents& contents) const {
    const fs::path folder = root_ / name;
    fs::create_directories(folder);
    write_file_atomic(folder / "config.json", "{\"model_type\": \"llama\"}\n");
    write_file_atomic(folder / "tokenizer.json", "{}\n");
    write_folder_tensors(folder, shapes(), [&](std::size_t i) { return contents.at(shapes()[i].name); });
    return folder;
  }
  std::unique_ptr<Store> store(const std::string& name = "store") const { return open_store((root_ / name).string(), true); }
  // Pushes contents 0, 1, 2, ... as a chain under channel `chat`, and gives the ids.
  std::vector<std::string> chain(Store& store, int length) {
    std::vector<std::string> ids;
    for (int i = 0; i < length; ++i) {
      all_.push_back(i == 0 ? first_contents() : next_contents(all_.back(), static_cast<std::uint64_t>(i)));
      ids.push_back(push_folder(store, folder_of(fmt::format("step-{}", i), all_.back()), {.parent = ids.empty() ? "" : ids.back()}).id);
      move_channel(store, "chat", ids.back());
    }
    return ids;
  }
  static Contents read_folder(const fs::path& folder) {
    Contents contents;
    const FolderTensors tensors(folder);
    for (const TensorShape& tensor : tensors.list()) contents[tensor.name] = tensors.read(tensor);
    return contents;
  }
  Contents pulled(const Store& store, const std::string& id, const PullOptions& options = {}) const {
    const fs::path to = root_ / "pulled";
    fs::remove_all(to);
    pull_snapshot(store, id, to, Overwrite::no, options);
    return read_folder(to);
  }
  template <class F>
  static std::string error_of(const F& work) {
    try {
      work();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  static void flip(const fs::path& file, std::uint64_t bit) {
    std::string bytes = read_file(file, std::size_t{1} << 30);
    bytes[bit / 8 % bytes.size()] ^= static_cast<char>(1u << (bit % 8));
    std::ofstream(file, std::ios::binary) << bytes;
  }

  fs::path root_;
  std::vector<Contents> all_;
};

TEST_F(Stores, AChainComesBackBitForBit) {
  const auto store = this->store();
  const auto ids = chain(*store, 5);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(pulled(*store, ids[i]), all_[i]) << i;
  EXPECT_EQ(find_snapshot(*store, "chat"), ids.back());
  EXPECT_EQ(find_snapshot(*store, ids[2].substr(0, 10)), ids[2]);
  EXPECT_TRUE(verify_snapshot(*store, ids.back(), {}).faults.empty());
  // Shards too, and from a local folder of an earlier step, with which only later payloads are read.
  EXPECT_EQ(pulled(*store, ids[4], {.most_shard_bytes = 2000}), all_[4]);
  EXPECT_TRUE(fs::exists(root_ / "pulled/model.safetensors.index.json"));
  const fs::path to = root_ / "from-local";
  const Pulled less = pull_snapshot(*store, ids[4], to, Overwrite::no, {.local = root_ / "step-3"});
  EXPECT_EQ(read_folder(to), all_[4]);
  EXPECT_LE(less.read_bytes, load_snapshot(*store, ids[4]).manifest.payload_bytes());
  EXPECT_GT(pull_snapshot(*store, ids[4], root_ / "whole", Overwrite::no, {}).read_bytes, less.read_bytes);
}

TEST_F(Stores, BytesDependOnNothingButThePair) {
  const auto one = store("one"), two = store("two");
  const Contents before = first_contents(), after = next_contents(before, 9);
  const fs::path a = folder_of("a", before), b = folder_of("b", after);
  const std::string parent = push_folder(*one, a, {.threads = 1}).id;
  EXPECT_EQ(push_folder(*two, a, {.threads = 5}).id, parent);
  const Written once = push_folder(*one, b, {.parent = parent, .threads = 1});
  EXPECT_EQ(push_folder(*two, b, {.parent = parent, .local = a, .threads = 5}).id, once.id);
  EXPECT_EQ(one->list(StoredKind::object), two->list(StoredKind::object));
}

TEST_F(Stores, SquashEqualsTheDirectPair) {
  const auto store = this->store(), direct = this->store("direct");
  const auto ids = chain(*store, 4);
  const Written squashed = squash_snapshots(*store, ids[0], ids[3], {});
  EXPECT_EQ(pulled(*store, squashed.id), all_[3]);
  push_folder(*direct, root_ / "step-0", {});
  EXPECT_EQ(push_folder(*direct, root_ / "step-3", {.parent = ids[0]}).id, squashed.id);
  EXPECT_EQ(squashed.content, content_digest(load_snapshot(*store, ids[3]).manifest));
  const Written whole = squash_snapshots(*store, "", ids[3], {});
  EXPECT_EQ(whole.content, squashed.content);
  EXPECT_EQ(push_folder(*direct, root_ / "step-3", {}).id, whole.id);
}

TEST_F(Stores, AFlippedBitIsFoundAndNothingIsWritten) {
  const auto store = this->store();
  const auto ids = chain(*store, 2);
  const Snapshot newest = load_snapshot(*store, ids[1]);
  std::mt19937_64 random(4);
  const auto object_path = [&](const std::string& digest) { return root_ / "store/objects" / digest.substr(0, 2) / digest; };
  const fs::path to = root_ / "damaged";
  int tried = 0;
  for (const std::string& id : ids)
    for (const SnapshotTensor& tensor : load_snapshot(*store, id).manifest.tensors) {  // each tensor in turn
      if (tensor.bytes == 0) continue;
      const fs::path file = object_path(tensor.object);
      const std::uint64_t bit = 8 * tensor.offset + random() % (8 * tensor.bytes);
      flip(file, bit);
      const std::string error = error_of([&] { pull_snapshot(*store, ids[1], to, Overwrite::no, {}); });
      EXPECT_NE(error.find("snapshot " + id.substr(0, 12) + ": tensor '" + tensor.shape.name + "' has the digest"), std::string::npos) << error;
      EXPECT_NE(error.find("expected " + tensor.result), std::string::npos) << error;
      EXPECT_FALSE(fs::exists(to));
      const VerifyReport report = verify_snapshot(*store, ids[1], {});
      EXPECT_EQ(report.faults.size(), 2u);  // the object's SHA-256 and the tensor
      flip(file, bit);
      ++tried;
    }
  EXPECT_EQ(tried, 8);
  EXPECT_EQ(pulled(*store, ids[1]), all_[1]);

  // A local base of which one bit is wrong is not believed: the chain is read instead.
  flip(root_ / "step-0/model.safetensors", 8 * (fs::file_size(root_ / "step-0/model.safetensors") - 1));
  EXPECT_EQ(pulled(*store, ids[1], {.local = root_ / "step-0"}), all_[1]);

  const fs::path manifest = root_ / "store/manifests" / (ids[1] + ".json");
  for (int i = 0; i < 50; ++i) {
    const std::uint64_t bit = random() % (8 * fs::file_size(manifest));
    flip(manifest, bit);
    const std::string error = error_of([&] { pull_snapshot(*store, ids[1], to, Overwrite::no, {}); });
    EXPECT_NE(error.find("has the SHA-256"), std::string::npos) << error;
    EXPECT_FALSE(fs::exists(to));
    flip(manifest, bit);
  }
  // A missing parent is named, and heals when any way to it appears.
  fs::rename(root_ / "store/manifests" / (ids[0] + ".json"), root_ / "away");
  const std::string error = error_of([&] { pull_snapshot(*store, ids[1], to, Overwrite::no, {}); });
  EXPECT_NE(error.find("needs its parent " + ids[0]), std::string::npos) << error;
  flip(root_ / "step-0/model.safetensors", 8 * (fs::file_size(root_ / "step-0/model.safetensors") - 1));
  EXPECT_EQ(pulled(*store, ids[1], {.local = root_ / "step-0"}), all_[1]);
}

TEST_F(Stores, AnotherModelIsNoChild) {
  const auto store = this->store();
  const auto ids = chain(*store, 1);
  const fs::path other = folder_of("other", all_[0]);
  write_file_atomic(other / "config.json", "{\"model_type\": \"qwen2\", \"hidden_size\": 8}\n");
  const std::string error = error_of([&] { push_folder(*store, other, {.parent = ids[0]}); });
  EXPECT_NE(error.find("config.json differs in model_type (\"llama\", now \"qwen2\"), hidden_size (nothing, now 8)"), std::string::npos) << error;
}

TEST_F(Stores, ChannelsAreSwappedWhole) {
  const auto store = this->store();
  const auto ids = chain(*store, 2);
  const Channel now = read_channel_record(*store, "chat").value();
  EXPECT_EQ(now.sequence, 2u);
  EXPECT_EQ(move_channel(*store, "chat", ids[1]).sequence, 2u);  // said again: nothing changes
  EXPECT_NE(error_of([&] { move_channel(*store, "chat", ids[0], "staged", ids[0]); }).find("was expected"), std::string::npos);
  EXPECT_EQ(move_channel(*store, "chat", ids[0], "staged", ids[1]).sequence, 3u);
  EXPECT_FALSE(store->swap_channel("chat", channel_text(now), channel_text(now)));
  // A number that cannot go up is left, and stays readable.
  ASSERT_TRUE(store->swap_channel("last", std::nullopt, channel_text({UINT64_MAX, ids[0], "immediate"})));
  EXPECT_NE(error_of([&] { move_channel(*store, "last", ids[1]); }).find("after which there is none"), std::string::npos);
  EXPECT_EQ(read_channel_record(*store, "last").value().target, ids[0]);
  // Four processes, fifty moves each: no number is lost.
  for (int child = 0; child < 4; ++child)
    if (fork() == 0) {
      try {
        for (int i = 0; i < 50; ++i) {
          const auto mine = open_store((root_ / "store").string());
          for (;;) {
            const auto text = mine->read_channel("count");
            const Channel before = text ? parse_channel(*text) : Channel{};
            if (mine->swap_channel("count", text, channel_text({before.sequence + 1, ids[0], "immediate"}))) break;
          }
        }
      } catch (...) {
        _exit(1);
      }
      _exit(0);
    }
  for (int child = 0, status = 0; child < 4; ++child) {
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_channel_record(*store, "count").value().sequence, 200u);
}

TEST_F(Stores, WhatHoldsASnapshotIsRemovedByItsMakerAlone) {
  const auto store = this->store();
  const auto ids = chain(*store, 2);
  std::vector<std::string> noted;
  const auto note = [&](const std::string& channel, const std::string& id) {
    EXPECT_EQ(id, ids[0]);
    EXPECT_FALSE(store->read_channel(channel));
    noted.push_back(channel);
  };
  EXPECT_EQ(hold_snapshot(*store, ids[0], "step-3", note), "step-3");
  // A name that is taken, one of a hold, and what no channel may be called.
  for (const std::string& name : {std::string("step-3"), std::string("held-0123456789abcdef"), std::string("a/b"), std::string(65, 'x'), std::string()})
    EXPECT_TRUE(is_hold_name(hold_snapshot(*store, ids[0], name, note))) << name;
  EXPECT_EQ(noted.size(), 6u);
  EXPECT_FALSE(is_hold_name("held-by-me"));
  EXPECT_EQ(find_snapshot(*store, noted.back()), ids[0]);
  EXPECT_FALSE(release_snapshot(*store, "step-3", ids[1])) << "it holds another";
  EXPECT_TRUE(store->read_channel("step-3"));
  EXPECT_TRUE(release_snapshot(*store, "step-3", ids[0]));
  EXPECT_FALSE(store->read_channel("step-3"));
  EXPECT_FALSE(release_snapshot(*store, "step-3", ids[0])) << "it is gone";
  move_channel(*store, noted[1], ids[1]);
  EXPECT_FALSE(release_snapshot(*store, noted[1], ids[0])) << "somebody moved it";
  EXPECT_FALSE(store->remove_channel("chat", "no record"));
}

// A pushed snapshot to which no channel points yet is not what another prunes.
TEST_F(Stores, AChannelIsMovedBeforeAnotherMayPrune) {
  const auto store = this->store();
  const std::string old = chain(*store, 1)[0];
  const Contents next = next_contents(all_[0], 5);
  std::string refused;
  PushOptions options{.parent = old};
  options.written = [&](const Written& now) {
    refused = error_of([&] { prune_store(*open_store((root_ / "store").string()), {}, false); });
    move_channel(*store, "chat", now.id);
  };
  const std::string id = push_folder(*store, folder_of("next", next), options).id;
  EXPECT_NE(refused.find("store' is in use by process"), std::string::npos) << refused;
  prune_store(*store, {}, false);
  EXPECT_EQ(find_snapshot(*store, "chat"), id);
  EXPECT_EQ(pulled(*store, id), next);
}

TEST_F(Stores, APushHealsADamagedFile) {
  const auto store = this->store();
  const std::string id = chain(*store, 1)[0];
  const Snapshot snapshot = load_snapshot(*store, id);
  const std::string digest = snapshot.manifest.file("config.json")->sha256;
  flip(root_ / "store/objects" / digest.substr(0, 2) / digest, 3);
  EXPECT_EQ(verify_snapshot(*store, id, {}).faults.size(), 2u);  // the object and the file
  EXPECT_EQ(push_folder(*store, root_ / "step-0", {}).id, id);
  EXPECT_TRUE(verify_snapshot(*store, id, {}).faults.empty());
}

TEST_F(Stores, PruningKeepsWhatIsNeeded) {
  const auto store = this->store();
  const auto ids = chain(*store, 4);
  const std::string squashed = squash_snapshots(*store, ids[0], ids[3], {}).id;
  move_channel(*store, "chat", squashed);
  const PruneReport said = prune_store(*store, {ids[1]}, true);
  EXPECT_EQ(store->list(StoredKind::manifest).size(), 5u);
  const PruneReport report = prune_store(*store, {ids[1]}, false);
  EXPECT_EQ(report.snapshots, said.snapshots);
  EXPECT_EQ(report.objects, said.objects);
  EXPECT_EQ(std::set<std::string>(report.snapshots.begin(), report.snapshots.end()), (std::set<std::string>{ids[2], ids[3]}));
  EXPECT_EQ(report.objects.size(), 2u);
  EXPECT_EQ(pulled(*store, squashed), all_[3]);
  EXPECT_EQ(pulled(*store, ids[1]), all_[1]);
  EXPECT_NE(error_of([&] { pulled(*store, ids[3]); }).find("is not in"), std::string::npos);
  EXPECT_NE(error_of([&] { prune_store(*this->store("bare"), {}, false); }).find("nothing would be kept"), std::string::npos);
}

// Runs `work` in a child that is killed at the n-th pass through a point; true when it was, false when it came to its end.
template <class F>
bool killed_at(const std::string& point, int pass, const F& work) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("LOCKSTEP_KILL_AT", fmt::format("{}:{}", point, pass).c_str(), 1);
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) << point << " " << pass << " " << status;
  return WIFSIGNALED(status);
}

TEST_F(Stores, AKillAtAnyPointLeavesTheOldOrTheNewSnapshot) {
  int kills = 0;
  for (const char* point : {"file.opened", "file.written", "file.synced", "file.renamed", "store.object", "store.manifest", "store.channel"})
    for (int pass = 1;; ++pass) {
      fs::remove_all(root_ / "store");
      all_.clear();
      const auto store = this->store();
      const std::string old = chain(*store, 1)[0];
      const Contents next = next_contents(all_[0], 77);
      const fs::path folder = folder_of("next", next);
      const bool killed = killed_at(point, pass, [&] {
        const auto mine = open_store((root_ / "store").string());
        const std::string id = push_folder(*mine, folder, {.parent = old, .threads = 1}).id;
        move_channel(*mine, "chat", id);
      });
      kills += killed;
      const std::string now = find_snapshot(*store, "chat");
      EXPECT_EQ(pulled(*store, now), now == old ? all_[0] : next) << point << " " << pass;
      EXPECT_TRUE(verify_snapshot(*store, now, {}).faults.empty()) << point << " " << pass;
      // The next push clears away what was left, and gives what it would have given.
      const std::string id = push_folder(*store, folder, {.parent = old}).id;
      move_channel(*store, "chat", id);
      EXPECT_EQ(pulled(*store, id), next);
      prune_store(*store, {}, false);
      EXPECT_EQ(store->list(StoredKind::manifest).size(), 2u);
      for (const auto& entry : fs::recursive_directory_iterator(root_ / "store/objects"))
        EXPECT_FALSE(entry.path().filename().string().starts_with("writing-"));
      if (!killed) break;
    }
  EXPECT_GE(kills, 15);
}

TEST_F(Stores, AKilledPruneLeavesNoSnapshotWithoutItsParent) {
  int kills = 0;
  for (int pass = 1;; ++pass) {
    fs::remove_all(root_ / "store");
    all_.clear();
    const auto store = this->store();
    const auto ids = chain(*store, 4);
    const std::string whole = squash_snapshots(*store, "", ids[3], {}).id;
    move_channel(*store, "chat", whole);
    const bool killed = killed_at("prune.manifest", pass, [&] { prune_store(*open_store((root_ / "store").string()), {}, false); });
    kills += killed;
    for (const std::string& id : store->list(StoredKind::manifest)) EXPECT_TRUE(verify_snapshot(*store, id, {}).faults.empty()) << pass;
    prune_store(*store, {}, false);
    EXPECT_EQ(store->list(StoredKind::manifest), std::vector<std::string>{whole});
    EXPECT_EQ(pulled(*store, whole), all_[3]);
    if (!killed) break;
  }
  EXPECT_EQ(kills, 4);
}

TEST_F(Stores, AKilledPullLeavesNoFolder) {
  const auto store = this->store();
  const auto ids = chain(*store, 3);
  int kills = 0;
  for (const char* point : {"pull.tensor", "file.opened", "file.written", "file.renamed", "folder.written", "folder.synced", "folder.renamed"})
    for (int pass = 1;; ++pass) {
      const fs::path to = root_ / "out";
      fs::remove_all(to);
      const bool killed = killed_at(point, pass, [&] { pull_snapshot(*open_store((root_ / "store").string()), ids[2], to, Overwrite::no, {.threads = 1}); });
      kills += killed;
      if (fs::exists(to)) {
        EXPECT_EQ(read_folder(to), all_[2]) << point << " " << pass;
      }
      EXPECT_EQ(pulled(*store, ids[2]), all_[2]);
      if (!killed) break;
    }
  EXPECT_GE(kills, 12);
}

TEST_F(Stores, OnlyStoresAreTaken) {
  fs::create_directories(root_ / "mine");
  std::ofstream(root_ / "mine/thesis.tex") << "x";
  EXPECT_NE(error_of([&] { store("mine"); }), "no error");
  EXPECT_NE(error_of([&] { open_store((root_ / "mine").string()); }).find("is no store of snapshots"), std::string::npos);
  const std::string secret = error_of([&] { open_store("https://user:pass@example.org/x"); });
  EXPECT_NE(secret.find("LOCKSTEP_STORE_KEY"), std::string::npos) << secret;
  EXPECT_EQ(secret.find("pass@"), std::string::npos) << secret;
  EXPECT_NE(error_of([&] { open_store("ftp://example.org/x"); }).find("allowed are a folder, http://, https:// and s3://"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_ / "mine"), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace lockstep
