# Perplexity, time and memory of a token against its position in the text, from positions.tsv.
set terminal svg size 1000,380 font "sans,12" background rgb "white"
set output "plot.svg"
set datafile separator tab
set grid
set xlabel "position, thousands of tokens"
names = "untouched exact window plsh-10"
titles = "'untouched, RoPE' 'exact' 'window' 'plsh, 10 samples'"
line(n) = sprintf("< awk -F'\t' '$1 == \"%s\"' positions.tsv", n)
set multiplot layout 1,3
set key top right samplen 1
set logscale y
set yrange [10:10000]
set title "perplexity"
plot for [i = 1:4] line(word(names, i)) using ($2 / 1e3):(exp($4)) with lines lw 2 lc i title word(titles, i)
unset key
unset logscale y
set yrange [0:*]
set title "milliseconds per token, one core"
plot for [i = 1:4] line(word(names, i)) using ($2 / 1e3):6 with lines lw 2 lc i notitle
set title "peak memory, GB"
plot for [i = 1:4] line(word(names, i)) using ($2 / 1e3):($7 / 1e9) with lines lw 2 lc i notitle
unset multiplot
