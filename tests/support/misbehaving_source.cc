#include "tests/support/misbehaving_source.h"

#include <algorithm>

namespace foretoken {
namespace {

constexpr std::uint32_t kMostQuoted = 16;
constexpr int kMostCallsLate = 6;
constexpr Duration kPerCall = std::chrono::microseconds(100);  // as it tells the engine
constexpr int kMistakeEvery = 8;                               // tokens, of an oracle

}  // namespace

void MisbehavingSource::open(const Opening& opening) {
  heard_[opening.seq] = {.text = &opening.text};
  quoted_.open(opening.seq, opening.text);
  honest_.open(opening);
}

void MisbehavingSource::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks)
    if (ask.budget > 0) heard_.at(ask.seq).is_owed = true;
  honest_.ask(asks);
}

void MisbehavingSource::collect(TimePoint now, ProposalStore& into) {
  honest_.collect(now, quoted_);
  for (const auto& [seq, heard] : heard_) {
    quote(seq, heard);
    quoted_.open(seq, *heard.text);  // each saying is quoted once
  }
  for (std::size_t n = under_way_.size(); n > 0; --n) {
    Saying saying = std::move(under_way_.front());
    under_way_.pop_front();
    if (--saying.calls_left > 0) {
      under_way_.push_back(std::move(saying));
      continue;
    }
    const auto heard = heard_.find(saying.seq);
    if (heard != heard_.end() && !saying.is_partial) heard->second.is_owed = false;
    into.insert(saying.seq, saying.proposal);
    n_said_ += saying.proposal.tokens.size();
  }
}

void MisbehavingSource::quote(SeqId seq, const Heard& heard) {
  const auto path = quoted_.best_path(seq, kMostQuoted, Calibration{});
  if (path.empty() || behaviour_ == Behaviour::kMute) return;
  Proposal saying{.base = heard.text->size(), .prefix = heard.text->prefix(), .source = kind()};
  for (const PathToken& token : path) {
    const bool lies = behaviour_ == Behaviour::kLying;
    saying.tokens.push_back(lies ? (token.token + 1 + draw(n_ids_ - 1)) % n_ids_ : token.token);
    saying.confidences.push_back(lies ? 255 : token.confidence);
  }
  if (behaviour_ == Behaviour::kStreaming) return stream(seq, saying);
  say_later(seq, saying, behaviour_ == Behaviour::kLate ? 1 + draw(kMostCallsLate) : 1);
  if (behaviour_ != Behaviour::kDuplicated) return;
  say_later(seq, saying, 1);
  say_later(seq, saying, 2 + draw(kMostCallsLate));
}

void MisbehavingSource::say_later(SeqId seq, const Proposal& proposal, int calls) {
  under_way_.push_back({seq, proposal, calls});
}

void MisbehavingSource::stream(SeqId seq, const Proposal& answer) {
  Proposal part = answer;
  for (std::size_t n = 1; n <= answer.tokens.size(); ++n) {
    part.tokens.assign(answer.tokens.begin(),
                       answer.tokens.begin() + static_cast<std::ptrdiff_t>(n));
    part.confidences.assign(answer.confidences.begin(),
                            answer.confidences.begin() + static_cast<std::ptrdiff_t>(n));
    under_way_.push_back({seq, part, static_cast<int>(n), n < answer.tokens.size()});
  }
}

void MisbehavingSource::close(SeqId seq) {
  if (heard_.erase(seq) > 0) quoted_.close(seq);
  honest_.close(seq);
}

DraftOutlook MisbehavingSource::outlook(SeqId seq, TimePoint) const {
  const auto heard = heard_.find(seq);
  if (heard == heard_.end()) return {};
  return {.readiness = DraftReadiness::kReady,
          .is_under_way = heard->second.is_owed,
          .arrives_in = kPerCall,
          .per_token = behaviour_ == Behaviour::kStreaming ? kPerCall : Duration{},
          .next_in = kPerCall};
}

void Oracle::ask(std::span<const Ask> asks) {
  for (const Ask& ask : asks) {
    const CommittedTokens& text = *texts_.at(ask.seq);
    const std::vector<TokenId>& told = whole_texts_.at(ask.seq);
    Proposal saying{.base = text.size(), .prefix = text.prefix(), .source = kind_};
    const std::size_t end = std::min<std::size_t>(told.size(), text.size() + ask.budget);
    for (std::size_t at = text.size(); at < end; ++at) {
      const bool errs = rng_() % kMistakeEvery == 0;
      saying.tokens.push_back(errs ? (told[at] + 1) % n_ids_ : told[at]);
      saying.confidences.push_back(220);
    }
    if (!saying.tokens.empty()) said_.emplace_back(ask.seq, std::move(saying));
  }
}

void Oracle::collect(TimePoint, ProposalStore& into) {
  for (const auto& [seq, saying] : said_) into.insert(seq, saying);
  said_.clear();
}

}  // namespace foretoken
