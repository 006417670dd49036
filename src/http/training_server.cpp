#include "http/training_server.h"

#include "api/fireworks/fireworks_routes.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {

void add_training_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes, const TrainingRouteOptions& options) {
  add_tinker_routes(routes, service, options);
  add_fireworks_routes(routes, service, shapes, options.streams);
}

std::map<std::string, std::int64_t> kept_row_figures(const TrainingService& service) {
  if (!service.kept_forwards()) return {};
  const KeptForwards::Statistics& rows = service.kept_forwards()->statistics();
  return {{"kept", rows.kept}, {"read", rows.read}, {"beside", rows.beside}, {"dropped", rows.dropped}, {"compared", rows.compared}, {"bytes", rows.bytes}};
}

std::function<void(PrometheusText&)> training_metrics(const std::shared_ptr<TrainingService>& service) {
  return [service](PrometheusText& text) {
    service->statistics().append(text);
    text.family("lockstep_training_models_waiting", "gauge", "Models with work that wait for a place in memory, by the key's name.");
    for (const auto& [key, count] : service->waiting_reasons().models_waiting()) text.sample({{"key", key}}, static_cast<double>(count));
    const auto one = [&](std::string_view name, std::string_view type, std::string_view help, std::int64_t value) {
      text.family(name, type, help);
      text.sample({}, static_cast<double>(value));
    };
    const KeptPasses::Statistics& reuse = service->reuse();
    one("lockstep_training_forwards_kept_total", "counter", "Forwards of training clients kept for a gradient of the same data.", reuse.kept);
    one("lockstep_training_forwards_reused_total", "counter", "Gradients that began with a kept forward.", reuse.used);
    one("lockstep_training_forwards_dropped_total", "counter", "Kept forwards that no gradient asked for before they had to go.", reuse.dropped);
    one("lockstep_training_forwards_kept_bytes", "gauge", "Memory of kept forwards.", reuse.bytes);
    if (!service->kept_forwards()) return;
    const KeptForwards::Statistics& rows = service->kept_forwards()->statistics();
    one("lockstep_training_rows_kept_total", "counter", "Rows of samples that were kept for training.", rows.kept);
    one("lockstep_training_rows_read_total", "counter", "Rows that training and scored prompts read instead of computing them.", rows.read);
    one("lockstep_training_rows_beside_total", "counter", "Rows that were computed beside those that were read.", rows.beside);
    one("lockstep_training_rows_dropped_total", "counter", "Rows of samples that found no memory, or lost it.", rows.dropped);
    one("lockstep_training_rows_compared_total", "counter", "Rows that were read and computed as well, to compare them.", rows.compared);
    one("lockstep_training_rows_bytes", "gauge", "Memory of kept rows.", rows.bytes);
  };
}

}  // namespace lockstep
