// The losses of MtpRank, and their gradients by the hidden states of each depth.
#include <algorithm>

#include "kernels/launch.h"
#include "model/operations/head.h"
#include "train/mtp_depth.h"
#include "train/mtp_joint.h"

namespace lockstep {

namespace {
// A column in which row p has the value that row p + ahead of its text has: `none` beyond the text's end, and at position 0, which has no row.
template <class T>
std::vector<T> column_ahead(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t ahead,
                            std::vector<T> TrainSequence::*member, T none) {
  std::vector<T> column;
  for (const std::size_t s : part) {
    const std::vector<T>& own = data[s].*member;
    const auto rows = static_cast<std::int64_t>(own.size());
    for (std::int64_t p = 0; p < rows; ++p) column.push_back(p > 0 && p + ahead < rows ? own[static_cast<std::size_t>(p + ahead)] : none);
  }
  return column;
}

// The model's logits of some rows of hidden states, on the host.
std::vector<float> logits_of(Context& of_model, const AdapterWeights* adapter, ParameterId head, std::int64_t vocabulary, const View& hidden,
                             const std::vector<std::int32_t>& rows) {
  Backend& backend = of_model.backend();
  const auto count = static_cast<std::int64_t>(rows.size());
  const Buffer index = backend.device().upload(rows, count, 1, MemoryCategory::workspace),
               z = backend.device().allocate(DType::f32, count, vocabulary, MemoryCategory::workspace);
  head_logits(of_model, z.view(), hidden, index.view(), head);
  add_adapter_logits(of_model, z.view(), hidden, index.view(), head, adapter);
  return backend.stream().read(z.view()).get();
}
}  // namespace

void MtpRank::add_cross_entropy(Context& of_model, const TrunkShare& trunk, Context& ctx, Depth& depth, std::int64_t ahead,
                                const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, double normaliser, const Buffer& logits,
                                Values& values) {
  Device& device = runtime_.backend.device();
  const Model& model = *runtime_.model;
  const std::int64_t count = depth.normed.view().rows;
  const std::vector<std::int32_t> targets = column_ahead<std::int32_t>(data, part, ahead, &TrainSequence::targets, -1);
  std::vector<float> weights = column_ahead<float>(data, part, ahead, &TrainSequence::weights, 0.0f);
  for (float& w : weights) w = static_cast<float>(static_cast<double>(w) / (normaliser * static_cast<double>(training_.depths)));
  values.targets[static_cast<std::size_t>(ahead)] += std::count_if(targets.begin(), targets.end(), [](std::int32_t token) { return token >= 0; });
  depth.targets = device.upload(targets, count, 1, MemoryCategory::activations);
  depth.weights = device.upload(weights, count, 1, MemoryCategory::activations);
  const auto output = [&](std::int64_t cols) { return device.allocate(DType::f32, count, cols, MemoryCategory::activations); };
  depth.logprob = output(1), depth.loss = output(1), depth.dx = output(model.facts().hidden);
  const Buffer log_sum = output(1), slope = output(1);
  HeadLoss head;
  head.logprob = depth.logprob.view();
  head.loss = depth.loss.view();
  head.flags = ctx.flags();
  head.x = depth.normed.view();
  head.w = of_model.packed(model.facts().head);
  head.target = depth.targets.view();
  head.round_input_bf16 = runtime_.profile.bf16_activations;
  head.objective.kind = LossKind::cross_entropy;
  head.objective.weight = depth.weights.view();
  head.dx = depth.dx.view();
  head.log_sum = log_sum.view();
  head.slope = slope.view();
  head.logits_chunk = logits.view();
  const AdapterRows adapter{trunk.adapter, nullptr, 0, count, 0, count};
  head_loss(of_model, head, model.facts().head, trunk.adapter ? &adapter : nullptr);
  if (!trunk.gradients || head.w.outputs == 0) return;
  GradientSet& g = *trunk.gradients;
  const ParameterId id = model.facts().head;
  head_weight(runtime_.backend, {.gradient = g.gradient(id),
                                 .bins = g.bins(id),
                                 .finish = g.finish_at_once(),
                                 .x = head.x,
                                 .w = head.w,
                                 .first = sharding_ ? sharding_->begin(id) : 0,
                                 .round_input_bf16 = head.round_input_bf16,
                                 .target = head.target,
                                 .log_sum = head.log_sum,
                                 .slope = head.slope,
                                 .segment = ctx.batch().tape_rows().segment});
}

// Some chains at a time: the logits of all their rows at once, then the chains, each by itself, then the gradients of what the depths said.
void MtpRank::add_variation(Context& of_model, const TrunkShare& trunk, Tape& tape, const std::vector<Depth>& depths, const View& hidden,
                            const std::vector<DraftChain>& chains, double normaliser, Values& values, Joint* joint) {
  if (chains.empty()) return;
  Backend& backend = runtime_.backend;
  Device& device = backend.device();
  const ModelFacts& facts = runtime_.model->facts();
  const std::int64_t vocabulary = facts.vocabulary, all = std::ssize(chains);
  const std::int64_t most = std::max<std::int64_t>(16, (std::int64_t{1} << 21) / (vocabulary * (training_.depths + 1)));
  // Of each depth, a row a chain; the last row is that of rows without one. The second: of the model's hidden states, which p is made of.
  std::vector<Buffer> gradients, of_states;
  for (std::vector<Buffer>* some : {&gradients, &of_states})
    for (std::size_t k = 0; k < depths.size() && (joint || some == &gradients); ++k)
      some->push_back(device.allocate_zero(DType::f32, all + 1, facts.hidden, MemoryCategory::activations));
  for (std::int64_t begin = 0; begin < all; begin += most) {
    const std::int64_t count = std::min(most, all - begin);
    const std::span<const DraftChain> some(chains.data() + begin, static_cast<std::size_t>(count));
    std::vector<std::int32_t> rows, model_rows;
    for (const DraftChain& chain : some) {
      rows.push_back(chain.row);
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(depths.size()); ++k) model_rows.push_back(chain.row + k);
    }
    std::sort(model_rows.begin(), model_rows.end());
    model_rows.erase(std::unique(model_rows.begin(), model_rows.end()), model_rows.end());
    const std::vector<float> of_hidden = logits_of(of_model, trunk.adapter, facts.head, vocabulary, hidden, model_rows);
    std::vector<Softmax> model_softmax(model_rows.size());
    ThreadPool& pool = device.threads();
    pool.run(std::ssize(model_rows), [&](std::int64_t i) {
      model_softmax[static_cast<std::size_t>(i)] = softmax_of(&of_hidden[static_cast<std::size_t>(i * vocabulary)], vocabulary);
    });
    std::vector<std::vector<float>> said;
    for (const Depth& depth : depths) said.push_back(logits_of(of_model, trunk.adapter, facts.head, vocabulary, depth.normed.view(), rows));
    std::vector<std::vector<float>> of_p(joint ? depths.size() : 0, std::vector<float>(static_cast<std::size_t>(count * vocabulary)));
    std::vector<std::vector<double>> alphas(static_cast<std::size_t>(count));
    pool.run(count, [&](std::int64_t i) {
      const DraftChain& chain = some[static_cast<std::size_t>(i)];
      std::vector<Softmax> q;
      std::vector<Overlap> of;
      const auto model_row = [&](std::size_t k) {
        const auto found = std::lower_bound(model_rows.begin(), model_rows.end(), chain.row + static_cast<std::int32_t>(k));
        return static_cast<std::size_t>(found - model_rows.begin());
      };
      const auto p = [&](std::size_t k) { return &of_hidden[model_row(k) * static_cast<std::size_t>(vocabulary)]; };
      for (std::size_t k = 0; k < depths.size(); ++k) {
        const float* z = &said[k][static_cast<std::size_t>(i * vocabulary)];
        q.push_back(softmax_of(z, vocabulary));
        of.push_back(overlap(p(k), model_softmax[model_row(k)], z, q[k], vocabulary));
        alphas[static_cast<std::size_t>(i)].push_back(of[k].alpha);
      }
      const std::vector<double> slopes = chain_slopes(alphas[static_cast<std::size_t>(i)]);
      for (std::size_t k = 0; k < depths.size(); ++k) {
        const auto at = static_cast<std::size_t>(i * vocabulary);
        const double slope = slopes[k] * (static_cast<double>(chain.weight) / normaliser);
        if (joint) model_overlap_gradient(p(k), model_softmax[model_row(k)], &said[k][at], q[k], of[k], slope, vocabulary, &of_p[k][at]);
        overlap_gradient(p(k), model_softmax[model_row(k)], &said[k][at], q[k], of[k], slope, vocabulary);
      }
    });
    for (std::size_t i = 0; i < alphas.size(); ++i) {
      const double share = static_cast<double>(some[i].weight) / normaliser;
      values.variation.push_back(share * chain_loss(alphas[i]));
      for (std::size_t k = 0; k < depths.size(); ++k) values.overlaps[k].push_back(share * alphas[i][k]);
    }
    for (std::size_t k = 0; k < depths.size(); ++k) {
      const Buffer dz = device.upload(said[k], count, vocabulary, MemoryCategory::workspace);
      head_input_gradient(of_model, gradients[k].view().row_range(begin, count), dz.view(), facts.head, trunk.adapter);
      if (!joint) continue;
      joint->add_head(of_model, dz.view(), depths[k].normed.view(), rows);
      const Buffer of_logits = device.upload(of_p[k], count, vocabulary, MemoryCategory::workspace);
      head_input_gradient(of_model, of_states[k].view().row_range(begin, count), of_logits.view(), facts.head, trunk.adapter);
      std::vector<std::int32_t> ahead = rows;
      for (std::int32_t& row : ahead) row += static_cast<std::int32_t>(k);
      joint->add_head(of_model, of_logits.view(), hidden, ahead);
    }
  }
  const std::int64_t count = hidden.rows;
  const auto spread = [&](const Buffer& of_chains, std::size_t ahead) {  // to the rows so many behind those of the chains
    std::vector<std::int32_t> from(static_cast<std::size_t>(count), static_cast<std::int32_t>(all));
    for (std::size_t i = 0; i < chains.size(); ++i) from[static_cast<std::size_t>(chains[i].row) + ahead] = static_cast<std::int32_t>(i);
    const Buffer index = device.upload(from, count, 1, MemoryCategory::activations);
    Buffer dx = device.allocate(DType::f32, count, facts.hidden, MemoryCategory::activations);
    backend.launch(&KernelTable::gather_rows, GatherRows{dx.view(), of_chains.view(), index.view()});
    return dx;
  };
  for (std::size_t k = 0; k < depths.size(); ++k) {
    tape.contribute(depths[k].normed.node, spread(gradients[k], 0));
    if (joint) joint->add_hidden(spread(of_states[k], k));
  }
}

}  // namespace lockstep
