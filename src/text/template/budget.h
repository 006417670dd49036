// Limits of one rendering: evaluation steps, nesting, bytes of strings and lists made on the way, bytes of output.
//   RenderBudget budget(limits); ... RenderBudget::step(); RenderBudget::bytes(text.size());
// Every operation of the template language charges the budget of its thread, so that `range(10**9)`, `'x' * 10**12` or a
// macro that calls itself end in one clear error. Thread rule: one budget, one rendering, one thread.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lockstep::jinja {

struct TemplateLimits {
  std::size_t source_bytes = std::size_t{1} << 20;
  std::int64_t steps = 10'000'000;
  int depth = 2500;                                 // nested evaluations: about 500 macro calls
  std::size_t stack_bytes = std::size_t{4} << 20;   // the same in bytes: frames are larger in some builds
  int value_depth = 400;                            // lists in lists
  std::size_t made_bytes = std::size_t{256} << 20;  // of all strings and lists made in one rendering
  std::size_t output_bytes = std::size_t{64} << 20;
};

class RenderBudget {
 public:
  explicit RenderBudget(const TemplateLimits& limits);
  ~RenderBudget();
  RenderBudget(const RenderBudget&) = delete;

  // resource_exhausted when the limit is passed. Without a budget on this thread they do nothing.
  static void step();
  static void bytes(std::size_t count);
  // Bytes looked at without making any: one by one, or as fast as memory is compared and searched. Counted as steps.
  static void read(std::size_t count) { steps(count / 16); }
  static void search(std::size_t count) { steps(count / 256); }
  static void check_value_depth(int depth);

  class Nested {  // one level deeper while it lives
   public:
    Nested();
    ~Nested();
    Nested(const Nested&) = delete;
  };

 private:
  static void steps(std::size_t count);
  const TemplateLimits limits_;
  std::int64_t steps_ = 0;
  std::size_t made_ = 0;
  int depth_ = 0;
  const char* stack_begin_;
  RenderBudget* outer_;
  static thread_local RenderBudget* current_;
};

}  // namespace lockstep::jinja
