// Adapters in a context: small products beside those of the frozen weights, each over the rows of its adapter. u = s (A x) is made again
// in backward: it costs less than it holds.
#include <algorithm>

#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

bool adapter_pair(const AdapterWeights& adapter, ParameterId base, const Profile& profile, AdapterPair& pair) {
  const AdapterLayout::Place& place = adapter.layout->place(base);
  if (place.a < 0) return false;
  pair = {place.a, place.b, adapter.packed(place.a, profile), adapter.packed(place.b, profile), adapter.layout->scale()};
  return true;
}

LinearForward adapter_down(const View& u, const View& x, const AdapterPair& pair) {
  LinearForward down{u, x, pair.a};
  down.scale = pair.scale;
  return down;
}

LinearForward adapter_up(const View& y, const View& u, const AdapterPair& pair) {
  LinearForward up{y, u, pair.b};
  up.accumulate = true;
  return up;
}

LinearBackwardInput adapter_down_gradient(const View& du, const View& dy, const AdapterPair& pair) {
  LinearBackwardInput down{du, dy, pair.b};
  down.scale = pair.scale;
  return down;
}

LinearBackwardWeight adapter_weight_gradient(GradientSet& gradients, ParameterId id, const PackedWeight& w, const View& dy, const View& x,
                                             const View& segment) {
  LinearBackwardWeight backward;
  backward.bins = gradients.bins(id);
  backward.finish = false;
  backward.dy = dy;
  backward.x = x;
  backward.w = w;
  backward.segment = segment;
  return backward;
}

namespace {
// f(rows of one adapter, its pair), for every adapter that stands on w.
template <class F>
void each_adapter(const std::vector<AdapterRows>* adapters, ParameterId w, const Profile& profile, const F& f) {
  if (!adapters) return;
  AdapterPair pair;
  for (const AdapterRows& rows : *adapters)
    if (rows.end > rows.begin && adapter_pair(*rows.weights, w, profile, pair)) f(rows, pair);
}
View forward_part(const View& v, const AdapterRows& rows) { return v.row_range(rows.begin, rows.end - rows.begin); }
View tape_part(const View& v, const AdapterRows& rows) { return v.row_range(rows.tape_begin, rows.tape_end - rows.tape_begin); }
// [T, heads * width] as [T * heads, width]: an activation without gaps, head by head.
View head_by_head(const View& v, std::int64_t heads) { return v.reshape(v.rows * heads, v.cols / heads); }
}  // namespace

bool Context::adapted(ParameterId w) const {
  return options_.adapters && std::any_of(options_.adapters->begin(), options_.adapters->end(), [&](const AdapterRows& rows) {
           return rows.end > rows.begin && rows.weights->layout->place(w).a >= 0;
         });
}

Buffer Context::head_rows(std::int64_t rows, std::int64_t heads) {
  std::vector<std::int32_t> row_of;
  for (std::int64_t i = 0; i < rows * heads; ++i) row_of.push_back(static_cast<std::int32_t>(i / heads));
  return backend_.device().upload(row_of, rows * heads, 1, MemoryCategory::activations);
}

// Of each expert's slots, those of one adapter's rows.
Context::SlotSpan Context::slot_span(const View& offsets, const View& row_of, std::int64_t row_begin, std::int64_t row_end) {
  const std::int64_t experts = offsets.rows - 1;
  SlotSpan span{allocate(DType::i32, experts, 1), allocate(DType::i32, experts, 1)};
  backend_.launch(&KernelTable::slot_ranges, SlotRanges{span.begin.view(), span.end.view(), offsets, row_of, row_begin, row_end});
  return span;
}

void Context::adapter_forward(const View& y, const View& x, ParameterId w, const SlotRows& slots) {
  each_adapter(options_.adapters, w, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const bool by_expert = static_cast<bool>(slots.offsets);
    const View from = by_expert ? x : forward_part(x, rows), to = by_expert ? y : forward_part(y, rows);
    const Buffer u = allocate(DType::f32, from.rows, pair.rank());
    LinearForward down = adapter_down(u.view(), from, pair), up = adapter_up(to, u.view(), pair);
    SlotSpan span;
    if (by_expert) {
      span = slot_span(slots.offsets, slots.row_of, rows.begin, rows.end);
      down.offsets = up.offsets = span.begin.view();
      down.ends = up.ends = span.end.view();
    }
    backend_.launch(&KernelTable::linear_forward, down);
    backend_.launch(&KernelTable::linear_forward, up);
  });
}

void Context::adapter_backward(const View& dx, const View& all_dy, const View& all_x, ParameterId w, const SlotRows& slots) {
  each_adapter(options_.adapters, w, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const bool by_expert = static_cast<bool>(slots.offsets);
    const View x = by_expert ? all_x : tape_part(all_x, rows), dy = by_expert ? all_dy : tape_part(all_dy, rows);
    const View segment = by_expert ? tape_rows().segment : tape_part(tape_rows().segment, rows);
    const Buffer u = allocate(DType::f32, x.rows, pair.rank()), du = allocate(DType::f32, x.rows, pair.rank());
    LinearForward down = adapter_down(u.view(), x, pair);
    LinearBackwardInput down_gradient = adapter_down_gradient(du.view(), dy, pair);
    LinearBackwardInput to_x{dx ? (by_expert ? dx : tape_part(dx, rows)) : View{}, du.view(), pair.a};
    to_x.accumulate = true;
    SlotSpan span;
    if (by_expert) {
      span = slot_span(slots.tape_offsets, slots.tape_row_of, rows.tape_begin, rows.tape_end);
      down.offsets = down_gradient.offsets = to_x.offsets = span.begin.view();
      down.ends = down_gradient.ends = to_x.ends = span.end.view();
    }
    backend_.launch(&KernelTable::linear_backward_input, down_gradient);
    if (dx) backend_.launch(&KernelTable::linear_backward_input, to_x);
    if (!rows.gradients) return;
    backend_.launch(&KernelTable::linear_forward, down);
    LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, dy, u.view(), segment);
    LinearBackwardWeight da = adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, du.view(), x, segment);
    if (by_expert) {
      db.offsets = da.offsets = span.begin.view();
      db.ends = da.ends = span.end.view();
      db.row_of = da.row_of = slots.tape_row_of;
    }
    backend_.launch(&KernelTable::linear_backward_weight, db);
    backend_.launch(&KernelTable::linear_backward_weight, da);
  });
}

// q [T, H * (nope + R)] -> y [T, H * (L + R)]: y's latent columns += (s (q B)) A, where the absorbed query is q W.
void Context::adapter_query_forward(const View& y, const View& q, ParameterId w_uk, std::int64_t rotary) {
  each_adapter(options_.adapters, w_uk, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.end - rows.begin, heads = pair.b.count, latent = pair.a.inputs, nope = pair.b.outputs, rank = pair.rank();
    const Buffer u = allocate(DType::f32, n, heads * rank);
    LinearBackwardInput down = adapter_down_gradient(u.view(), forward_part(q, rows), pair);
    down.x_step = rank;
    down.y_step = nope + rotary;
    backend_.launch(&KernelTable::linear_backward_input, down);
    LinearBackwardInput up{head_by_head(forward_part(y, rows), heads).column_range(0, latent), head_by_head(u.view(), heads), pair.a};
    up.accumulate = true;
    backend_.launch(&KernelTable::linear_backward_input, up);
  });
}

void Context::adapter_query_backward(const View& all_dq, const View& all_dy, const View& all_q, ParameterId w_uk, std::int64_t rotary) {
  each_adapter(options_.adapters, w_uk, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.tape_end - rows.tape_begin, heads = pair.b.count, latent = pair.a.inputs, nope = pair.b.outputs, rank = pair.rank();
    const View q = tape_part(all_q, rows), dy = head_by_head(tape_part(all_dy, rows), heads).column_range(0, latent);
    const Buffer du = allocate(DType::f32, n, heads * rank);
    backend_.launch(&KernelTable::linear_forward, adapter_down(head_by_head(du.view(), heads), dy, pair));
    LinearForward to_q = adapter_up(tape_part(all_dq, rows), du.view(), pair);
    to_q.x_step = rank;
    to_q.y_step = nope + rotary;
    backend_.launch(&KernelTable::linear_forward, to_q);
    if (!rows.gradients) return;
    const View segment = tape_part(tape_rows().segment, rows);
    LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, q, du.view(), segment);
    db.x_step = rank;
    db.y_step = nope + rotary;
    backend_.launch(&KernelTable::linear_backward_weight, db);
    const Buffer u = allocate(DType::f32, n, heads * rank), row_of = head_rows(n, heads);
    LinearBackwardInput down = adapter_down_gradient(u.view(), q, pair);
    down.x_step = rank;
    down.y_step = nope + rotary;
    backend_.launch(&KernelTable::linear_backward_input, down);
    LinearBackwardWeight da = adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, head_by_head(u.view(), heads), dy, segment);
    da.row_of = row_of.view();
    backend_.launch(&KernelTable::linear_backward_weight, da);
  });
}

// o [T, H * L] -> y [T, H * v]: A is every head's.
void Context::adapter_values_forward(const View& y, const View& o, ParameterId w_uv) {
  each_adapter(options_.adapters, w_uv, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.end - rows.begin, heads = pair.b.count;
    const Buffer u = allocate(DType::f32, n, heads * pair.rank());
    backend_.launch(&KernelTable::linear_forward, adapter_down(head_by_head(u.view(), heads), head_by_head(forward_part(o, rows), heads), pair));
    LinearForward up = adapter_up(forward_part(y, rows), u.view(), pair);
    up.x_step = pair.rank();
    up.y_step = pair.b.outputs;
    backend_.launch(&KernelTable::linear_forward, up);
  });
}

void Context::adapter_values_backward(const View& all_dx, const View& all_dy, const View& all_o, ParameterId w_uv) {
  each_adapter(options_.adapters, w_uv, profile_, [&](const AdapterRows& rows, const AdapterPair& pair) {
    const std::int64_t n = rows.tape_end - rows.tape_begin, heads = pair.b.count, rank = pair.rank();
    const View dy = tape_part(all_dy, rows), o = head_by_head(tape_part(all_o, rows), heads);
    const Buffer du = allocate(DType::f32, n, heads * rank);
    LinearBackwardInput down_gradient = adapter_down_gradient(du.view(), dy, pair);
    down_gradient.x_step = rank;
    down_gradient.y_step = pair.b.outputs;
    backend_.launch(&KernelTable::linear_backward_input, down_gradient);
    if (all_dx) {
      LinearBackwardInput to_x{head_by_head(tape_part(all_dx, rows), heads), head_by_head(du.view(), heads), pair.a};
      to_x.accumulate = true;
      backend_.launch(&KernelTable::linear_backward_input, to_x);
    }
    if (!rows.gradients) return;
    const View segment = tape_part(tape_rows().segment, rows);
    const Buffer u = allocate(DType::f32, n, heads * rank), row_of = head_rows(n, heads);
    backend_.launch(&KernelTable::linear_forward, adapter_down(head_by_head(u.view(), heads), o, pair));
    LinearBackwardWeight db = adapter_weight_gradient(*rows.gradients, pair.b_id, pair.b, dy, u.view(), segment);
    db.x_step = rank;
    db.y_step = pair.b.outputs;
    backend_.launch(&KernelTable::linear_backward_weight, db);
    LinearBackwardWeight da = adapter_weight_gradient(*rows.gradients, pair.a_id, pair.a, head_by_head(du.view(), heads), o, segment);
    da.row_of = row_of.view();
    backend_.launch(&KernelTable::linear_backward_weight, da);
  });
}

}  // namespace lockstep
