set terminal svg size 1300,430 font "sans,13" background rgb "white"
set output "plot.svg"
set datafile separator tab
set logscale x 2
set xlabel "ranks: servers of 64 cores, 100 Gbit/s"
set xrange [1:1024]
set grid
set key top left samplen 1 font ",11"
set multiplot layout 1,3
line(kind, m) = sprintf("< awk -F'\t' '$1 == \"server\" && $2 == \"%s\" && $3 == \"%s\"' data.tsv", kind, m)
methods = "exact plsh ring ulysses"
set title "time of a step, 2^{20} tokens a rank"
set ylabel "seconds"
set logscale y
set format y "10^{%T}"
plot for [m in methods] line("1M tokens a rank", m) using 4:6 with linespoints pointtype 7 pointsize 0.5 title m
set title "rows of others, 2^{20} tokens a rank"
set ylabel "bytes sent per rank and step"
unset key
plot for [m in methods] line("1M tokens a rank", m) using 4:13 with linespoints pointtype 7 pointsize 0.5 title m
set title "exact, a fixed number of tokens"
set ylabel "efficiency"
set key bottom left
unset logscale y
set format y "%g"
set yrange [0:1.05]
plot for [n in "16M 1M 128k"] line(n." tokens", "exact") using 4:16 with linespoints pointtype 7 pointsize 0.5 title n." tokens"
unset multiplot
