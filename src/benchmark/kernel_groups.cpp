#include "benchmark/kernel_groups.h"

#include <algorithm>

namespace lockstep {

namespace {
struct FunctionGroup {
  std::string_view name;
  std::string_view parts;  // of symbols, separated by blanks; a number before a name is its length, as in a symbol: "3add" is not add_bias_to_rows
};
// The first row that matches counts: a lambda of attention's backward pass inside attention's walk over keys belongs to the backward pass.
constexpr FunctionGroup kGroups[] = {
    {"accumulators", "deposit_ finish_bins join_bins join_group 14AccumulatorVecI"},
    {"products for the gradients of weights", "linear_backward_weight product_weight head_weight pack_weight_rows"},
    {"products forward and for the gradients of inputs",
     "linear_forward linear_backward_input backward_input_with backward_input_in_parts run_products product_tile product_part product_block product_in_parts "
     "product_transposed for_row_tiles item_rows free_product free_block free_tile multiply_loop multiply_tile quantise round_group low_bit head_logits "
     "number_logits "
     "IntegerDot"},
    {"head and loss",
     "head_loss head_row head_shard HeadScratch HeadTotals log_sum row_gradient target_loss policy_loss value_loss "
     "taught_ row_results divergence_sum TeacherScratch"},
    {"indexer", "index_ RowSelection 10CandidatesI 12SequenceLossI"},
    {"attention backward",
     "attention_backward backward_sequence backward_rows backward_keys backward_columns list_pairs PairScratch "
     "dot_productsINS_7Avx2VecELb0E dot_productsINS_9Avx512VecELb0E dot_productsINS_9ScalarVecELb0E "
     "panel_productsINS_7Avx2VecELb0E panel_productsINS_9Avx512VecELb0E panel_productsINS_9ScalarVecELb0E"},
    {"attention forward",
     "attention_ forward_of_runs 9SingleRow 10SingleRows 8RowBlock LinesAhead for_key_blocks for_head_tiles weighted_ for_entry_columns softmax_scores "
     "largest_scores"},
    {"attention, both ways",
     "11make_panelsI dot_products panel_products panel_dots_of exp_all EntryBlock keys_of_row ranks_between subtract_by_head sums_by_head for_chains"},
    {"norms", "rms_norm layer_norm"},
    {"rope", "8lockstep4ropeI rope_half_row"},
    {"optimizer", "adamw square_sum square_range"},
    {"elementwise", "8lockstep3addI 8lockstep5scaleI swiglu bias_ embedding_ cache_write gather_rows set_elements 8lockstep4pickI sum_shared_rows slot_source"},
    {"experts", "router_ expert_ slot_ranges leave_groups_out"},
    {"sampling", "8lockstep6sampleI sample_ adjust_logits top_tokens 7top_row select_top row_logits"},
    {"waiting for other threads", "10ThreadPool3run 10ThreadPool5State 10ThreadPoolC"},
};
}  // namespace

std::string_view kernel_group(std::string_view symbol) {
  if (symbol.empty()) return kOutsideTheProgram;
  for (const FunctionGroup& group : kGroups)
    for (std::string_view rest = group.parts; !rest.empty();) {
      const std::string_view part = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
      if (symbol.find(part) != std::string_view::npos) return group.name;
    }
  return kOtherFunctions;
}

}  // namespace lockstep
