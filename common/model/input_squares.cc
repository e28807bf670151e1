#include "common/model/input_squares.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "common/base/check.h"
#include "common/model/config.h"
#include "common/model/decoder.h"
#include "common/model/families.h"
#include "common/model/hf_folder.h"
#include "common/model/linear_inputs.h"
#include "common/model/load_decoder.h"
#include "common/model/sequence_reader.h"

namespace foretoken {
namespace {

// Sums of squares, in double: rows are many.
class SquareSums final : public LinearInputObserver {
 public:
  SquareSums(Backend& backend, float norm_eps)
      : backend_(backend), norm_eps_(static_cast<double>(norm_eps)) {}

  void see(const LinearInput& input) override {
    const auto n_in = static_cast<std::size_t>(input.n_in);
    const std::vector<float> x = host_copy(input.x, n_in * static_cast<std::size_t>(input.n_rows));
    std::vector<float> norm(n_in, 1.0f);
    if (input.norm != nullptr) norm = host_copy(input.norm, n_in);
    std::vector<double> sums(n_in);
    for (std::size_t begin = 0; begin < x.size(); begin += n_in) {
      const auto row = std::span(x).subspan(begin, n_in);
      const double share = input.norm == nullptr ? 1.0 : 1.0 / (mean_square(row) + norm_eps_);
      for (std::size_t i = 0; i < n_in; ++i) {
        const double value = static_cast<double>(row[i]) * static_cast<double>(norm[i]);
        sums[i] += value * value * share;
      }
    }
    for (const std::string_view linear : input.linears)
      add(names::layer(input.layer, linear), sums);
  }

  InputSquares means(std::size_t n_rows) const {
    InputSquares means;
    for (const auto& [name, sums] : sums_)
      for (const double sum : sums) {
        const auto mean = static_cast<float>(sum / static_cast<double>(n_rows));
        if (!std::isfinite(mean))
          throw FatalError(ErrorCode::kMalformed,
                           name + ": what it multiplies has no finite mean square");
        means[name].push_back(mean);
      }
    return means;
  }

 private:
  std::vector<float> host_copy(const float* from, std::size_t n) {
    std::vector<float> values(n);
    backend_.download(values.data(), from, n * sizeof(float));
    return values;
  }
  static double mean_square(std::span<const float> row) {
    double sum = 0;
    for (const float value : row) sum += static_cast<double>(value) * static_cast<double>(value);
    return sum / static_cast<double>(row.size());
  }
  void add(const std::string& name, const std::vector<double>& sums) {
    std::vector<double>& all = sums_[name];
    all.resize(sums.size());
    std::ranges::transform(all, sums, all.begin(), std::plus());
  }

  Backend& backend_;
  const double norm_eps_;
  std::map<std::string, std::vector<double>, std::less<>> sums_;
};

}  // namespace

InputSquares mean_squared_inputs(const std::filesystem::path& folder,
                                 Backend& backend,
                                 std::span<const TokenId> tokens) {
  FORETOKEN_CHECK(!tokens.empty());
  const auto window = static_cast<std::int32_t>(std::min(kCalibrationWindow, tokens.size()));
  SquareSums sums(backend, read_model_config(folder).rms_norm_eps);
  const auto model =
      load_decoder(folder, backend, {.max_rows = window, .most_model_len = window}, &sums);
  const auto at_once = std::min<std::size_t>(
      static_cast<std::size_t>(window), static_cast<std::size_t>(model->config().max_model_len));
  for (std::size_t begin = 0; begin < tokens.size(); begin += at_once) {
    const auto some = tokens.subspan(begin, std::min(at_once, tokens.size() - begin));
    SequenceReader(*model, backend, some.size()).next(some, LogitRows::kLast);
  }
  return sums.means(tokens.size());
}

}  // namespace foretoken
