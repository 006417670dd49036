// The row behind a guess is the decoded row's expression: on the traced backend every number carries the hash of what made it, and those of
// every operation's rows are the same with guesses and without; under another leaf count they are others.
#include <map>

#include "base/hash.h"
#include "engine/drafts_test_tools.h"
#include "model/batch.h"
#include "model/observer.h"

namespace lockstep {
namespace {

// Of the one request that runs: hashes of its rows, by operation and position. A row that is computed again, because its token was a wrong
// guess, takes the place of the first.
class HashedRows : public OperationObserver {
 public:
  void begin_forward(Backend& backend, const Batch& batch) override {
    backend_ = &backend;
    rows_ = batch.count();
    begin_ = batch.longest() - rows_;
    operation_ = 0;
  }
  void operation(const Operation& op) override {
    ++operation_;
    if (op.slot_of || op.output.dtype != DType::f32 || op.output.rows != rows_) return;
    const std::vector<std::uint64_t> hashes = backend_->stream().read_hashes(op.output).get();
    const auto cols = static_cast<std::size_t>(op.output.cols);
    for (std::int64_t row = 0; row < rows_; ++row)
      of_[{operation_, begin_ + row}] = xxh3(hashes.data() + static_cast<std::size_t>(row) * cols, cols * sizeof(std::uint64_t));
  }
  const std::map<std::pair<int, std::int64_t>, std::uint64_t>& of() const { return of_; }

 private:
  Backend* backend_ = nullptr;
  std::int64_t rows_ = 0, begin_ = 0;
  int operation_ = 0;
  std::map<std::pair<int, std::int64_t>, std::uint64_t> of_;
};

TEST(Drafts, AVerifiedRowIsTheDecodedRowsExpression) {
  const BackendOptions traced{.kind = BackendKind::traced, .threads = 1};
  const Request request{.prompt = {4, 5, 6, 7}, .sampling = {.seed = 3, .max_tokens = 14}};
  const auto run = [&](Plant& plant, const Request& asked, HashedRows& rows) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 4});
    plant.runtime.observer = &rows;
    Generation got = engine.generate({asked})[0];
    plant.runtime.observer = nullptr;
    return got;
  };
  Plant plant("wide", "cpu-bf16w", traced), other("wide", "study-leaves", traced);
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  HashedRows decoded, under_other_leaves;
  const Generation want = run(plant, request, decoded);
  EXPECT_GT(decoded.of().size(), 100u);
  for (const Guesses guesses : {Guesses::perfect, Guesses::random}) {
    HashedRows verified;
    const Generation got = run(plant, guessed(request, guesses, want, vocabulary, 4), verified);
    EXPECT_EQ(all_bits_of(got), all_bits_of(want));
    EXPECT_GT(got.drafts.accepted, 3);
    EXPECT_TRUE(verified.of() == decoded.of());
  }
  run(other, request, under_other_leaves);
  EXPECT_FALSE(under_other_leaves.of() == decoded.of());
}

}  // namespace
}  // namespace lockstep
