// Records, operation by operation, what a forward computed for one token sequence, and compares recordings: names the first operation in which two
// runs differ, with its layer, row and column.
//   OperationRecording a(tokens); runtime.observer = &a; engine_score(engine, tokens);
//   OperationRecording b(tokens, &a); ... b.first_difference();
// An observer finds the sequence's rows among all rows of every forward (by their whole prefix, read through the page table) and hashes them. Rows
// of other sequences with the same prefix count too: the contract says that they are equal. It sees only what is computed while it observes: rows
// behind a prefix that was cached earlier are skipped, so record on a new engine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/observer.h"

namespace lockstep {

class OperationRecording : public OperationObserver {
 public:
  static constexpr int kNone = -1;
  // Compares with `expected` as it goes (it must outlive this). `keep`: the operation whose bits are kept, not only their hash.
  explicit OperationRecording(std::vector<std::int32_t> tokens, const OperationRecording* expected = nullptr, int keep = kNone);

  struct RecordedOperation {
    std::string name, parameter;
    int layer = -1;                                // -1: none
    std::vector<std::uint64_t> hash;               // by position; of positions that were computed
    std::vector<std::vector<std::uint32_t>> bits;  // by position; empty unless kept
    std::string text() const { return parameter.empty() ? name : name + " " + parameter; }
  };
  const std::vector<RecordedOperation>& operations() const { return operations_; }
  std::int64_t rows() const { return rows_; }  // of the sequence, over all forwards

  struct Difference {
    int operation = 0;                       // index into operations()
    std::int64_t position = 0, column = -1;  // column -1: that operation's bits were not kept
    std::uint32_t expected = 0, got = 0;
  };
  // The earliest operation of the forward with a row that differs from `expected`; of these rows the one of the lowest position.
  const std::optional<Difference>& first_difference() const { return first_; }

  void begin_forward(Backend& backend, const Batch& batch) override;
  void operation(const Operation& operation) override;
  void replay_segment() override { replaying_ = true; }

 private:
  struct Row {
    std::int64_t row, position;
  };
  void compare(int at, std::int64_t position, const std::vector<std::uint32_t>& bits);

  Backend* backend_ = nullptr;  // of the last forward
  std::vector<std::int32_t> tokens_;
  const OperationRecording* expected_;
  int keep_, next_ = 0, layer_ = -1;
  bool replaying_ = false;
  std::vector<RecordedOperation> operations_;
  std::vector<std::int32_t> slot_token_;  // by slot of the cache: the token that stands there
  std::vector<Row> mine_;                 // rows of this forward
  std::vector<bool> computed_;            // by position
  std::int64_t rows_ = 0;
  std::optional<Difference> first_;
};

// The layer in a parameter's name, "model.layers.3.mlp..." -> 3; -1 without one.
int layer_of_parameter(std::string_view name);

}  // namespace lockstep
