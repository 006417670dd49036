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

}  // namespace
}  // namespace lockstep
