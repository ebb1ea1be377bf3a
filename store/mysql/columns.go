package mysql

// The columns of headgate_take, from what a decision leaves in variables, and when the next attempt could pass.
const (
	retryAfter = `cast(case when @hg_g then 0 when @hg_retry < 9007199254740991
        then cast(greatest(0, @hg_retry - @hg_clk) as decimal(26, 6)) / 1000000 end as decimal(20, 6))`

	figures = `select @hg_g as allowed,
        if(@hg_block > greatest(@hg_clk, @hg_at), 0, greatest(0, @hg_capacity - @hg_x) div @hg_c) as remaining,
        ` + retryAfter + ` as retry_after,
        cast(cast(greatest(0, greatest(@hg_empty, @hg_block) - @hg_clk) as decimal(26, 6)) / 1000000
            as decimal(20, 6)) as reset_after,
        @hg_name as limit_name,
        cast('1970-01-01' + interval @hg_now microsecond as datetime(6)) as at`
)
