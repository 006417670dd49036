#include "text/template/budget.h"

#include "base/client_work.h"
#include "base/error.h"

namespace lockstep::jinja {

thread_local RenderBudget* RenderBudget::current_ = nullptr;

RenderBudget::RenderBudget(const TemplateLimits& limits)
    : limits_(limits), stack_begin_(static_cast<const char*>(__builtin_frame_address(0))), outer_(current_) {
  current_ = this;
}
RenderBudget::~RenderBudget() { current_ = outer_; }

void RenderBudget::step() { steps(1); }

void RenderBudget::steps(std::size_t count) {
  ClientWork::check();
  if (current_ && (current_->steps_ += static_cast<std::int64_t>(count)) > current_->limits_.steps)
    fail(ErrorCode::resource_exhausted, "the chat template ran for {} steps without an end; that is the limit", current_->limits_.steps);
}

void RenderBudget::bytes(std::size_t count) {
  if (!current_) return;
  if (count > current_->limits_.made_bytes - current_->made_)
    fail(ErrorCode::resource_exhausted, "the chat template made more than {} bytes of strings and lists; that is the limit", current_->limits_.made_bytes);
  current_->made_ += count;
}

void RenderBudget::check_value_depth(int depth) {
  if (current_ && depth > current_->limits_.value_depth)
    fail(ErrorCode::resource_exhausted, "a value in the chat template is nested more than {} deep; that is the limit", current_->limits_.value_depth);
}

RenderBudget::Nested::Nested() {
  if (!current_) return;
  const auto stack = static_cast<std::size_t>(current_->stack_begin_ - static_cast<const char*>(__builtin_frame_address(0)));
  if (++current_->depth_ > current_->limits_.depth || (stack > current_->limits_.stack_bytes && stack < SIZE_MAX / 2)) {
    --current_->depth_;
    fail(ErrorCode::resource_exhausted, "the chat template is nested or recurses more than {} evaluations or {} bytes of stack deep; that is the limit",
         current_->limits_.depth, current_->limits_.stack_bytes);
  }
}
RenderBudget::Nested::~Nested() {
  if (current_) --current_->depth_;
}

}  // namespace lockstep::jinja
