#include "store/training_store.h"

#include <gtest/gtest.h>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {

struct StoreFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("store-" + hex64(random_bits()));
  ~StoreFolder() { std::filesystem::remove_all(path); }
};

TEST(TrainingStore, DocumentsComeBackInOrderAfterAReopen) {
  const StoreFolder folder;
  {
    TrainingStore store(folder.path);
    for (const char* id : {"b", "a", "c"}) store.put("session", id, std::string("first ") + id);
    store.put("session", "b", "second b");
    store.remove("session", "c");
    store.put("model", "b", "another kind");
  }
  TrainingStore store(folder.path);
  std::vector<std::string> seen;
  store.each("session", [&](const std::string& id, const std::string& document) { seen.push_back(id + "=" + document); });
  EXPECT_EQ(seen, (std::vector<std::string>{"b=second b", "a=first a"}));
}

TEST(TrainingStore, ResultsHoldAnyBytesAndTheOldestGo) {
  const StoreFolder folder;
  TrainingStore store(folder.path);
  const std::string bytes(1000, '\0');
  for (int i = 0; i < 10; ++i) store.put_result({"r" + std::to_string(i), "ann", i < 5 ? "m1" : "m2", "application/x", bytes, "", ""});
  ASSERT_TRUE(store.result("r0"));
  EXPECT_EQ(store.result("r0")->bytes, bytes);
  EXPECT_EQ(store.trim_results(4000), 7);
  EXPECT_FALSE(store.result("r6"));
  EXPECT_TRUE(store.result("r9"));
  store.remove_results("m2");
  EXPECT_FALSE(store.result("r9"));
}

TEST(TrainingStore, AFileThatIsNoneIsRefused) {
  const StoreFolder folder;
  std::filesystem::create_directories(folder.path);
  std::FILE* file = std::fopen((folder.path / "lockstep.db").c_str(), "w");
  std::fputs("this is no database, and it is long enough to be looked at as one by whoever reads its first hundred bytes or so .....", file);
  std::fclose(file);
  try {
    TrainingStore store(folder.path);
    FAIL() << "opened";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file) << e.what();
  }
}

TEST(TrainingStore, ADatabaseOfANewerVersionIsRefused) {
  const StoreFolder folder;
  { TrainingStore store(folder.path); }
  { Database(folder.path / "lockstep.db").execute("PRAGMA user_version=2;"); }
  EXPECT_THROW(TrainingStore store(folder.path), Error);
}

}  // namespace
}  // namespace lockstep
