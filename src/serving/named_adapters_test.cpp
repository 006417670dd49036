// Adapters by name: their memory is claimed before it is taken, and given back with their last user.
#include "serving/named_adapters.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/adapter_folder.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

TEST(NamedAdapters, MemoryIsClaimedBeforeItIsTaken) {
  const OpenedModel opened = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1});
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "named-adapter";
  const AdapterLayout layout(opened.model->manifest(), {.rank = 4, .alpha = 8, .attention = true, .mlp = false, .unembedding = false});
  save_adapter_folder(folder, layout, initial_adapter(layout, 3), "countdown-glm", true);
  std::int64_t bytes = 0;
  for (const Parameter& parameter : layout.manifest().parameters()) bytes += 4 * parameter.size();
  const auto ledger = std::make_shared<MemoryLedger>(3 * bytes);  // read, one takes twice as much
  NamedAdapters adapters(opened.runtime, std::make_shared<Executor>(), "base", {.ledger = ledger});
  adapters.load("one", folder);
  EXPECT_EQ(ledger->held("adapters"), bytes);
  adapters.load("two", folder);
  EXPECT_EQ(ledger->held("adapters"), 2 * bytes);
  try {
    adapters.load("three", folder);
    ADD_FAILURE() << "it was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    const std::string text = e.what();
    EXPECT_TRUE(text.find("reading the adapter 'three' takes") != std::string::npos && text.find("what frees some: adapters: unload some") != std::string::npos)
        << text;
  }
  std::optional<NamedAdapter> used = adapters.find("one");
  adapters.unload("one");
  EXPECT_EQ(ledger->held("adapters"), 2 * bytes);  // a request has it still
  used.reset();
  EXPECT_EQ(ledger->held("adapters"), bytes);
  adapters.load("three", folder);
  std::filesystem::remove_all(folder);
}

// A client names a folder below the server's own, by whatever way.
TEST(NamedAdapters, AFolderElsewhereIsNone) {
  const OpenedModel opened = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1});
  const std::filesystem::path all = std::filesystem::path(testing::TempDir()) / "named-adapters", root = all / "root";
  std::filesystem::remove_all(all);
  std::filesystem::create_directories(root);
  const AdapterLayout layout(opened.model->manifest(), {.rank = 4, .alpha = 8, .attention = true, .mlp = false, .unembedding = false});
  for (const std::filesystem::path& folder : {root / "in", all / "out"}) save_adapter_folder(folder, layout, initial_adapter(layout, 3), "countdown-glm", true);
  std::filesystem::create_directory_symlink(all / "out", root / "link");
  NamedAdapters adapters(opened.runtime, std::make_shared<Executor>(), "base", {.root = root});
  for (const std::string& folder : {std::string("../out"), (all / "out").string(), std::string("in/../../out"), std::string("link"), std::string("."),
                                    std::string(), std::string("none"), std::string(1 << 17, 'a')}) {
    try {
      adapters.load_below_root("other", folder, false);
      ADD_FAILURE() << folder.substr(0, 80) << " was loaded";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::not_found) << folder.substr(0, 80);
    }
  }
  EXPECT_EQ(adapters.load_below_root("mine", "in", false).name, "mine");
  EXPECT_EQ(adapters.load_below_root("again", (root / "in").string(), false).name, "again");
  std::filesystem::remove_all(all);
}

}  // namespace
}  // namespace lockstep
