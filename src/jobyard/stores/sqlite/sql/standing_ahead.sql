-- in: queue, group, urgency, sequence, cap. out: how many due jobs of the group go before.
SELECT count(*) FROM (SELECT 1 FROM jobyard_ready
  WHERE queue = ? AND group_name = ? AND (urgency, sequence) < (?, ?) LIMIT ?)
