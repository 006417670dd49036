#include "model/kept_forwards.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "model/kept_text.h"
#include "model/runtime.h"

namespace lockstep {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr KeptForwards::Root kRoot{7, 0};

std::shared_ptr<const Model> kept_model() {
  return make_model(Json::parse(R"({"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": 64, "intermediate_size": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": true, "hidden_act": "silu"})"));
}

// Rows say where they come from: a text's number, the position, the segment.
struct KeptBench {
  static constexpr std::int64_t kPageBytes = 4 * 3 * 8 * 4;  // positions, segments, columns, bytes
  Runtime runtime{{.threads = 1}, kept_model(), profile_by_name("cpu-f32"), 64};
  Backend& backend = runtime.backend;
  std::shared_ptr<KeptForwards> kept;

  explicit KeptBench(std::int64_t pages = 100, const std::shared_ptr<MemoryLedger>& room = nullptr)
      : kept(std::make_shared<KeptForwards>(runtime, RowValues::segments,
                                            KeptForwards::Settings{.most_bytes = pages * kPageBytes, .page_positions = 4, .verify_every = 0, .room = room})) {}
  static float value(float text, std::int64_t position, std::int64_t segment) {
    return text * 1000 + static_cast<float>(position) * 10 + static_cast<float>(segment);
  }
  // A forward of positions [begin, end) of a text. Returns how many of its rows found a place.
  std::int64_t forward(KeptText& text, const Tokens& tokens, std::int64_t begin, std::int64_t end, float number, bool sound = true) {
    std::int64_t placed = 0;
    for (const KeptText::Place& place : text.places(tokens, begin, end)) {
      EXPECT_EQ(place.from, placed);
      for (std::int64_t segment = 0; segment < kept->layout().values(); ++segment)
        for (std::int64_t i = 0; i < place.count; ++i)
          backend.stream().write(kept->layout().of_value(place.page->view(), segment).row_range(place.first + i, 1),
                                 std::vector<float>(8, value(number, begin + place.from + i, segment)));
      placed += place.count;
    }
    if (sound) text.enter(tokens, begin, end);
    return placed;
  }
  // Whether rows [begin, end) of a text are there and are those of a forward with this number.
  ::testing::AssertionResult there(const Tokens& tokens, std::int64_t begin, std::int64_t end, float number, const KeptForwards::Root& root = kRoot) {
    std::vector<KeptForwards::Piece> pieces;
    if (!kept->find(root, tokens, begin, end, pieces)) return ::testing::AssertionFailure() << "nothing is found";
    std::int64_t position = begin;
    for (const KeptForwards::Piece& piece : pieces)
      for (std::int64_t i = 0; i < piece.count; ++i, ++position)
        for (std::int64_t segment = 0; segment < kept->layout().values(); ++segment) {
          const float got = backend.stream().read(kept->layout().of_value(piece.rows->view(), segment).row_range(piece.first + i, 1)).get()[3];
          if (got != value(number, position, segment))
            return ::testing::AssertionFailure() << "position " << position << " behind segment " << segment << " has " << got;
        }
    if (position != end) return ::testing::AssertionFailure() << "rows end at " << position;
    return ::testing::AssertionSuccess();
  }
  bool found(const Tokens& tokens, std::int64_t begin, std::int64_t end, const KeptForwards::Root& root = kRoot) {
    std::vector<KeptForwards::Piece> pieces;
    return kept->find(root, tokens, begin, end, pieces);
  }
};

Tokens text_of(std::int32_t first, std::size_t length) {
  Tokens tokens(length);
  for (std::size_t i = 0; i < length; ++i) tokens[i] = (first + 3 * static_cast<std::int32_t>(i)) % 32;
  return tokens;
}

TEST(KeptText, IsFoundHoweverItsRowsCame) {
  const Tokens tokens = text_of(1, 14);
  for (const std::vector<std::int64_t>& ends :
       {std::vector<std::int64_t>{14}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, {4, 8, 14}, {3, 5, 13, 14}, {9, 10, 14}}) {
    KeptBench bench;
    {
      KeptText text(bench.kept, kRoot);
      std::int64_t begin = 0;
      for (const std::int64_t end : ends) {
        EXPECT_EQ(bench.forward(text, tokens, begin, end, 1), end - begin);
        begin = end;
      }
      EXPECT_FALSE(bench.found(tokens, 0, 14));  // its last page is still written
      EXPECT_TRUE(bench.there(tokens, 0, 12, 1));
    }
    EXPECT_TRUE(bench.there(tokens, 0, 14, 1));
    EXPECT_TRUE(bench.there(tokens, 0, 13, 1));
    EXPECT_TRUE(bench.there(tokens, 6, 11, 1));
    EXPECT_FALSE(bench.found(text_of(2, 14), 0, 14));
    Tokens other = tokens;
    other[1] = 31;
    EXPECT_FALSE(bench.found(other, 8, 12));  // rows depend on what is before them
    other = tokens;
    other.push_back(9);
    EXPECT_FALSE(bench.found(other, 0, 15));
    EXPECT_FALSE(bench.found(tokens, 0, 14, {8, 0}));
    EXPECT_FALSE(bench.found(tokens, 0, 14, {7, 1}));
    EXPECT_FALSE(bench.found(tokens, 0, 14, {7, 0, 5}));  // another owner's
    EXPECT_EQ(bench.kept->statistics().bytes, 4 * KeptBench::kPageBytes);
  }
}

TEST(KeptText, GoesOnBehindWhatIsThere) {
  KeptBench bench;
  const Tokens tokens = text_of(1, 10);
  Tokens other = tokens;
  other[9] = 30;
  {
    KeptText first(bench.kept, kRoot), second(bench.kept, kRoot);
    bench.forward(first, tokens, 0, 10, 1);
    EXPECT_EQ(bench.forward(second, other, 8, 10, 2), 2);  // a cache had the first two pages
  }
  EXPECT_TRUE(bench.there(tokens, 0, 10, 1));
  EXPECT_TRUE(bench.there(other, 0, 8, 1));
  EXPECT_TRUE(bench.there(other, 8, 10, 2));
  EXPECT_EQ(bench.kept->statistics().bytes, 4 * KeptBench::kPageBytes);
  {
    // The same again and further: the shorter page goes.
    KeptText third(bench.kept, kRoot);
    Tokens longer = tokens;
    longer.push_back(11);
    bench.forward(third, longer, 8, 11, 1);
  }
  EXPECT_TRUE(bench.there(tokens, 0, 10, 1));
  EXPECT_EQ(bench.kept->statistics().bytes, 4 * KeptBench::kPageBytes);
}

TEST(KeptText, MayBeCutAndPutBack) {
  KeptBench bench;
  Tokens tokens = text_of(1, 10);
  {
    KeptText text(bench.kept, kRoot);
    bench.forward(text, tokens, 0, 10, 1);
    tokens[9] = 31;  // its last token was guessed, and was wrong
    bench.forward(text, tokens, 9, 10, 1);
    tokens.resize(7);  // cut into a page that is entered
    tokens.push_back(2), tokens.push_back(3);
    bench.forward(text, tokens, 7, 9, 1);
    bench.forward(text, tokens, 4, 9, 1);  // put back, and computed again
  }
  EXPECT_TRUE(bench.there(tokens, 0, 9, 1));
  EXPECT_TRUE(bench.there(text_of(1, 9), 0, 9, 1));
}

TEST(KeptText, OfWhichRowsAreMissingIsNotFound) {
  KeptBench bench;
  const Tokens tokens = text_of(1, 12);
  {
    KeptText text(bench.kept, kRoot);
    bench.forward(text, tokens, 0, 4, 1);
    EXPECT_EQ(bench.forward(text, tokens, 6, 12, 1), 0);  // rows 4 and 5 were somebody else's
  }
  {
    KeptText text(bench.kept, kRoot);
    bench.forward(text, tokens, 8, 12, 1);
  }
  EXPECT_TRUE(bench.there(tokens, 8, 12, 1));
  EXPECT_FALSE(bench.found(tokens, 0, 12));
  EXPECT_FALSE(bench.found(tokens, 4, 8));
  {
    KeptText text(bench.kept, kRoot);
    bench.forward(text, tokens, 4, 8, 1, false);  // something in it was not finite
  }
  EXPECT_FALSE(bench.found(tokens, 4, 8));
}

TEST(KeptForwardsMemory, TheOldestEndGoesFirst) {
  KeptBench bench(5);
  const Tokens shared = text_of(1, 4);
  const auto sample = [&](std::int32_t last) {
    Tokens tokens = shared;
    for (std::int32_t i = 0; i < 4; ++i) tokens.push_back(last);
    KeptText text(bench.kept, kRoot);
    EXPECT_EQ(bench.forward(text, tokens, 0, 8, 1), 8);
    return tokens;
  };
  const Tokens first = sample(1), second = sample(2), third = sample(3);
  EXPECT_EQ(bench.kept->statistics().bytes, 4 * KeptBench::kPageBytes);
  EXPECT_TRUE(bench.found(first, 0, 8));  // it is used
  const Tokens fourth = sample(4);        // its beginning is written beside before it is known
  EXPECT_TRUE(bench.found(first, 0, 8));
  EXPECT_FALSE(bench.found(second, 0, 8));
  EXPECT_TRUE(bench.found(second, 0, 4));
  EXPECT_TRUE(bench.found(fourth, 0, 8));
  EXPECT_EQ(bench.kept->statistics().dropped, 4);

  std::vector<KeptForwards::Piece> read;
  ASSERT_TRUE(bench.kept->find(kRoot, third, 0, 8, read));
  for (std::int32_t i = 10; i < 20; ++i) sample(i);
  EXPECT_TRUE(bench.there(third, 0, 8, 1));  // whoever reads it keeps it
  read.clear();
  bench.kept->forget(7);
  EXPECT_EQ(bench.kept->statistics().bytes, 0);
  EXPECT_FALSE(bench.found(third, 0, 8));
}

TEST(KeptForwardsMemory, IsClaimed) {
  const auto ledger = std::make_shared<MemoryLedger>(3 * KeptBench::kPageBytes);
  KeptBench bench(100, ledger);
  const Tokens tokens = text_of(1, 16);
  {
    KeptText text(bench.kept, kRoot);
    EXPECT_EQ(bench.forward(text, tokens, 0, 16, 1), 12);
    EXPECT_EQ(ledger->held("kept forwards"), 3 * KeptBench::kPageBytes);
  }
  EXPECT_TRUE(bench.there(tokens, 0, 12, 1));
  EXPECT_FALSE(bench.found(tokens, 0, 13));
  EXPECT_EQ(bench.kept->statistics().dropped, 4);
  bench.kept->forget(7);
  EXPECT_EQ(ledger->held("kept forwards"), 0);
}

// Ranks look for pages, hold them and let go of them while an engine fills others in little memory.
TEST(KeptForwardsMemory, IsSharedByThreads) {
  const auto ledger = std::make_shared<MemoryLedger>(100 * KeptBench::kPageBytes);
  KeptBench bench(6, ledger);
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> wrong{0};
  const auto look = [&] {
    for (std::int32_t first = 0; !done; first = (first + 1) % 8) {
      std::vector<KeptForwards::Piece> pieces;
      std::this_thread::yield();
      if (!bench.kept->find(kRoot, text_of(first, 12), 0, 12, pieces)) continue;
      std::int64_t rows = 0;
      for (const KeptForwards::Piece& piece : pieces) rows += piece.rows ? piece.count : 0;
      wrong += rows != 12;
    }
  };
  std::thread one(look), other(look);
  for (int round = 0; round < 400; ++round) {
    const Tokens tokens = text_of(round % 8, 12);
    KeptText text(bench.kept, kRoot);
    bench.forward(text, tokens, 0, 12, static_cast<float>(round % 8));
  }
  done = true;
  one.join();
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(bench.kept->statistics().most, 6 * KeptBench::kPageBytes);
  EXPECT_EQ(ledger->held("kept forwards"), bench.kept->statistics().bytes);
  bench.kept->forget(kRoot.weights);
  EXPECT_EQ(ledger->held("kept forwards"), 0);
}

TEST(KeptForwardsMemory, IsThatOfItsValues) {
  KeptBench bench;
  EXPECT_EQ(bench.kept->layout().page_bytes(), KeptBench::kPageBytes);
  // q, k, v, attention and its log sums, o, gate, up, down; of each layer.
  EXPECT_EQ(row_widths(bench.runtime, RowValues::operations).size(), 3u * 9);
  const std::vector<std::int64_t> widths = row_widths(bench.runtime, RowValues::operations);
  EXPECT_EQ(std::vector<std::int64_t>(widths.begin(), widths.begin() + 9), (std::vector<std::int64_t>{8, 4, 4, 8, 2, 8, 8, 8, 8}));
}

TEST(KeptForwardsMemory, OneRowInSoManyIsChosen) {
  KeptBench bench;
  KeptForwards kept(bench.runtime, RowValues::segments, KeptForwards::Settings{.most_bytes = 1, .verify_every = 3});
  EXPECT_EQ(kept.rows_to_compare(5), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(kept.rows_to_compare(2), (std::vector<std::int64_t>{1}));
  EXPECT_TRUE(kept.compares_forward());
  EXPECT_FALSE(kept.compares_forward());
  KeptForwards none(bench.runtime, RowValues::segments, {});
  EXPECT_EQ(none.rows_to_compare(5), std::vector<std::int64_t>{});
  EXPECT_FALSE(none.compares_forward());
}

}  // namespace
}  // namespace lockstep
